# Builds a hosts file with the names of all Services, from [ServiceList, EndpointsList].
# With publishNotReadyAddresses, `addresses` of Endpoints includes unready pods.
def fqdn: "\(.metadata.name).\(.metadata.namespace).svc.cluster.local";

(.[0].items | map({key: fqdn, value: (.spec.clusterIP // "")}) | from_entries) as $cluster_ips
| [ ($cluster_ips | to_entries[] | select(.value != "" and .value != "None") | "\(.value) \(.key)"),
    (.[1].items[] | fqdn as $name | select($cluster_ips[$name] == "None")
      | .subsets[]?.addresses[]?
      | "\(.ip) \($name)", (select(.hostname) | "\(.ip) \(.hostname).\($name)"))
  ] | unique[]
