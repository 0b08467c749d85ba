//! End-to-end tests against the cluster that KUBECONFIG names.
