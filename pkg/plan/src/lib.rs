//! The plan of a job's replicas, and the pods and services made from it; pure.
