# shellcheck shell=bash
# Cluster DNS: dnsmasq, answering from a hosts file that dns-sync keeps as the Endpoints are. CoreDNS is not in Debian.

DNS_HOSTS=$STATE/conf/dns-hosts

start_dns() {
  : >>"$DNS_HOSTS"
  # TTL 0: a name must be gone when its pod is. No upstream, and any other name is answered with NXDOMAIN at once.
  daemon_inside "$CONTROL_PLANE" dnsmasq dnsmasq --keep-in-foreground --conf-file=/dev/null --pid-file --user=root \
    --log-facility=- --bind-interfaces --listen-address="$CONTROL_PLANE_IP" --no-resolv --no-hosts \
    --addn-hosts="$DNS_HOSTS" --local-ttl=0 --local=/cluster.local/ --address=/#/
  daemon dns-sync env DI_CLUSTER="$CLUSTER" DI_CLUSTER_DIR="$CLUSTER_ROOT" "$KIND_DIR/lib/dns-sync"
}

dns_ready() { grep -q ' kubernetes.default.svc.cluster.local$' "$DNS_HOSTS"; }
