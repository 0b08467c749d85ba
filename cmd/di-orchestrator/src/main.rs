//! The in-cluster program: manager, server, crds.

fn main() {}
