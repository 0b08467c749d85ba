use serde_json::{Value, json};

/// A DIJob manifest.
#[derive(Clone, Debug)]
pub struct Job(Value);

/// A pod template whose container never runs, since there is no kubelet.
pub fn template() -> Value {
    json!({"spec": {"containers": [{"name": "di-container", "image": "none"}]}})
}

impl From<Value> for Job {
    fn from(job: Value) -> Self {
        Self(job)
    }
}

impl Job {
    /// A job with a coordinator and this number of collectors.
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

    /// Adds learners.
    #[must_use]
    pub fn learners(mut self, learners: usize) -> Self {
        self.0["spec"]["learner"] = json!({"template": template(), "replicas": learners});
        self
    }

    /// Adds learners with these resources.
    #[must_use]
    pub fn learners_with(mut self, learners: usize, resources: &Value) -> Self {
        self = self.learners(learners);
        let template = &mut self.0["spec"]["learner"]["template"];
        template["spec"]["containers"][0]["resources"] = resources.clone();
        self
    }

    /// Changes the spec.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.0["spec"]);
        self
    }

    /// Sets the clean-up policy.
    #[must_use]
    pub fn policy(mut self, policy: &str) -> Self {
        self.0["spec"]["cleanPodPolicy"] = policy.into();
        self
    }

    /// Adds a finalizer, so that the test decides when the deletion completes.
    #[must_use]
    pub fn finalizer(mut self) -> Self {
        self.0["metadata"]["finalizers"] = json!(["tests.opendilab.org/hold"]);
        self
    }

    /// The manifest as JSON.
    pub fn json(&self) -> &Value {
        &self.0
    }
}
