//! Tests against a real etcd and kube-apiserver.
