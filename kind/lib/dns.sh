# shellcheck shell=bash
# Cluster DNS: dnsmasq with a hosts file that dns-sync updates from the Endpoints. Debian has no CoreDNS.

DNS_HOSTS=$STATE/conf/dns-hosts

start_dns() {
  : >>"$DNS_HOSTS"
  # TTL 0: a name must disappear with its pod. There is no upstream: any other name gets NXDOMAIN at once.
  daemon_inside "$CONTROL_PLANE" dnsmasq dnsmasq --keep-in-foreground --conf-file=/dev/null --pid-file --user=root \
    --log-facility=- --bind-interfaces --listen-address="$CONTROL_PLANE_IP" --no-resolv --no-hosts \
    --addn-hosts="$DNS_HOSTS" --local-ttl=0 --local=/cluster.local/ --address=/#/
  daemon dns-sync env DI_CLUSTER="$CLUSTER" DI_CLUSTER_DIR="$CLUSTER_ROOT" "$KIND_DIR/lib/dns-sync"
}

dns_ready() { grep -q ' kubernetes.default.svc.cluster.local$' "$DNS_HOSTS"; }
