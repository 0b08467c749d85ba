# Runs etcd and kube-apiserver in $DIR until standard input ends, which happens in any case when the tests end. Each line of
# input is a command that kills or starts a program.
exec 3<&0
cd "$DIR" || exit 1
start_etcd() {
  "$ASSETS/etcd" --data-dir=etcd --unsafe-no-fsync --log-level=warn --logger=zap \
    --listen-client-urls="http://127.0.0.1:$ETCD_PORT" --advertise-client-urls="http://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls="http://127.0.0.1:$PEER_PORT" --initial-advertise-peer-urls="http://127.0.0.1:$PEER_PORT" \
    --initial-cluster="default=http://127.0.0.1:$PEER_PORT" >>etcd.log 2>&1 3<&- &
  etcd=$!
}
# A test needs the volumes of this gate, which is on by default since 1.21 and unknown since 1.25.
case $("$ASSETS/kube-apiserver" --version) in
"Kubernetes v1.20."*) gates=--feature-gates=GenericEphemeralVolume=true ;;
*) gates= ;;
esac
start_apiserver() {
  "$ASSETS/kube-apiserver" --etcd-servers="http://127.0.0.1:$ETCD_PORT" \
    --bind-address=127.0.0.1 --secure-port="$API_PORT" --endpoint-reconciler-type=none \
    --cert-dir=certificates --tls-cert-file=server.crt --tls-private-key-file=server.key \
    --allow-privileged=true --authorization-mode=RBAC --token-auth-file=tokens.csv --service-cluster-ip-range=10.0.0.0/16 \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=accounts.pub \
    --service-account-signing-key-file=accounts.key --disable-admission-plugins=ServiceAccount \
    $gates --audit-policy-file=audit-policy.yaml --audit-log-path=audit.log --audit-log-maxsize=1024 \
    >>apiserver.log 2>&1 3<&- &
  apiserver=$!
}
# The apiextensions server of a newer Kubernetes. It authenticates and authorizes requests with kube-apiserver.
start_crd_server() {
  cat >kubeconfig <<END
apiVersion: v1
kind: Config
clusters: [{name: own, cluster: {server: "https://127.0.0.1:$API_PORT", certificate-authority: $DIR/ca.crt}}]
users: [{name: admin, user: {token: admin-token}}]
contexts: [{name: own, context: {cluster: own, user: admin}}]
current-context: own
END
  # Kubernetes 1.20 does not serve the kinds that the disabled plugins watch.
  "$CRD_SERVER" --etcd-servers="http://127.0.0.1:$ETCD_PORT" --etcd-prefix=/newer \
    --bind-address=127.0.0.1 --secure-port="$CRD_PORT" --tls-cert-file=server.crt --tls-private-key-file=server.key \
    --kubeconfig=kubeconfig --authentication-kubeconfig=kubeconfig --authorization-kubeconfig=kubeconfig \
    --authentication-tolerate-lookup-failure=true --enable-priority-and-fairness=false \
    --disable-admission-plugins=MutatingAdmissionPolicy,ValidatingAdmissionPolicy >>crd-server.log 2>&1 3<&- &
  crd_server=$!
}
kill_etcd() {
  kill -KILL "$etcd"
  wait "$etcd"
}
kill_apiserver() {
  kill -KILL "$apiserver"
  wait "$apiserver"
}
start_etcd
start_apiserver
while read -r action <&3; do
  case $action in
  start_etcd | start_apiserver | start_crd_server | kill_etcd | kill_apiserver) "$action" ;;
  esac
  echo >>done
done
kill -KILL $crd_server "$apiserver" "$etcd" 2>/dev/null
wait
rm -rf "$DIR"
