# The names of all Services, as lines of a hosts file, from [ServiceList, EndpointsList].
# `addresses` of Endpoints holds unready pods too where the Service says publishNotReadyAddresses.
def fqdn: "\(.metadata.name).\(.metadata.namespace).svc.cluster.local";

(.[0].items | map({key: fqdn, value: (.spec.clusterIP // "")}) | from_entries) as $cluster_ips
| [ ($cluster_ips | to_entries[] | select(.value != "" and .value != "None") | "\(.value) \(.key)"),
    (.[1].items[] | fqdn as $name | select($cluster_ips[$name] == "None")
      | .subsets[]?.addresses[]?
      | "\(.ip) \($name)", (select(.hostname) | "\(.ip) \(.hostname).\($name)"))
  ] | unique[]
