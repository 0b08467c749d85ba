//! The reconciler of DIJobs: observe, step, act.
