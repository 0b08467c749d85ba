use serde_json::{Value, json};

/// A job to be made.
#[derive(Clone, Debug)]
pub struct Job(Value);

/// A pod template whose main container does nothing, since nothing runs it.
pub fn template() -> Value {
    json!({"spec": {"containers": [{"name": "di-container", "image": "none"}]}})
}

impl From<Value> for Job {
    fn from(job: Value) -> Self {
        Self(job)
    }
}

impl Job {
    /// A coordinator, and as many collectors as said.
    pub fn new(name: &str, collectors: usize) -> Self {
        Self(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2",
            "kind": "DIJob",
            "metadata": {"name": name},
            "spec": {
                "coordinator": {"template": template()},
                "collector": {"template": template(), "replicas": collectors},
            },
        }))
    }

    /// Learners too.
    #[must_use]
    pub fn learners(mut self, learners: usize) -> Self {
        self.0["spec"]["learner"] = json!({"template": template(), "replicas": learners});
        self
    }

    /// What is left at its end.
    #[must_use]
    pub fn policy(mut self, policy: &str) -> Self {
        self.0["spec"]["cleanPodPolicy"] = policy.into();
        self
    }

    /// Held by a finalizer, so that its deletion takes as long as the test wants.
    #[must_use]
    pub fn finalizer(mut self) -> Self {
        self.0["metadata"]["finalizers"] = json!(["tests.opendilab.org/hold"]);
        self
    }

    /// As it is sent.
    pub fn json(&self) -> &Value {
        &self.0
    }
}
