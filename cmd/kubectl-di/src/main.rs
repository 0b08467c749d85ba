//! kubectl di: create, watch, scale and end DIJobs.

fn main() {}
