/// Namespace and name of an object, usually of a job.
pub type Key = (String, String);
