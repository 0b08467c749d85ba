# shellcheck shell=bash
# One CA, a certificate for each client, and kubeconfigs. Every cluster has new ones.

PKI=$STATE/pki
SERVICE_IP=10.96.0.1 # of the Service `kubernetes`: the first of the range

openssl_quiet() { openssl "$@" 2>>"$STATE/log/pki.log" || die_with_log "$STATE/log/pki.log" "openssl $1 failed"; }

pki_key() { openssl_quiet ecparam -name prime256v1 -genkey -noout -out "$PKI/$1.key"; }

pki_ca() {
  mkdir -p "$PKI"
  chmod 700 "$PKI"
  pki_key ca
  openssl_quiet req -x509 -new -key "$PKI/ca.key" -subj /CN=di-cluster -days 3650 -out "$PKI/ca.crt" \
    -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign,digitalSignature
}

pki_sign() { # pki_sign NAME SUBJECT EXTENSIONS
  pki_key "$1"
  openssl_quiet req -new -key "$PKI/$1.key" -subj "$2" -out "$PKI/$1.csr"
  openssl_quiet x509 -req -in "$PKI/$1.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -set_serial "0x$(openssl rand -hex 8)" \
    -days 3650 -out "$PKI/$1.crt" -extfile <(printf '%s\n' "$3")
}

pki_client() { pki_sign "$1" "$2" extendedKeyUsage=clientAuth; } # pki_client NAME SUBJECT

pki_server() {
  local names=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
  names+=,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$CONTROL_PLANE_IP,IP:$SERVICE_IP
  pki_sign apiserver /CN=kube-apiserver "subjectAltName=$names"$'\n'extendedKeyUsage=serverAuth
}

kubeconfig_for() { # kubeconfig_for NAME SERVER: prints a kubeconfig with embedded certificates
  cat <<CONFIG
apiVersion: v1
kind: Config
current-context: $1@$CLUSTER
clusters:
  - name: $CLUSTER
    cluster:
      server: $2
      certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")
contexts:
  - name: $1@$CLUSTER
    context: {cluster: $CLUSTER, user: $1}
users:
  - name: $1
    user:
      client-certificate-data: $(base64 -w0 "$PKI/$1.crt")
      client-key-data: $(base64 -w0 "$PKI/$1.key")
CONFIG
}

pki_create() { # pki_create WORKERS
  local inside=https://$CONTROL_PLANE_IP:6443 name node i
  pki_ca
  pki_server
  pki_key service-accounts
  pki_client kubernetes-admin /O=system:masters/CN=kubernetes-admin
  pki_client di-cluster /O=system:masters/CN=di-cluster
  pki_client kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  for name in kube-controller-manager kube-scheduler kube-proxy; do pki_client "$name" "/CN=system:$name"; done
  for ((i = 1; i <= $1; i++)); do
    node=$(worker_name "$i")
    pki_client "$node" "/O=system:nodes/CN=system:node:$node"
  done
  for name in kube-controller-manager kube-scheduler kube-proxy $(for ((i = 1; i <= $1; i++)); do worker_name "$i"; echo; done); do
    kubeconfig_for "$name" "$inside" >"$STATE/conf/$name.kubeconfig"
  done
  kubeconfig_for kubernetes-admin "https://127.0.0.1:$API_PORT" >"$STATE/kubeconfig"
  chmod 600 "$STATE/kubeconfig"
}

# api PATH: calls the API server as the scripts' own user, which the audit log omits.
api() {
  curl --silent --show-error --fail --max-time 5 --unix-socket "$STATE/api.sock" \
    --cacert "$PKI/ca.crt" --cert "$PKI/di-cluster.crt" --key "$PKI/di-cluster.key" "https://localhost$1" "${@:2}"
}
