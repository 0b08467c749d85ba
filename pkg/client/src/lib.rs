//! What kubectl di does to a cluster, as a library.
