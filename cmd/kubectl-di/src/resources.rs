use anyhow::{Result, ensure};
use clap::Args;
use di_api::{ReplicaResources, quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The flags that tell of a replica's resources.
#[derive(Clone, Debug, Args)]
pub struct Resources {
    /// CPUs of each, as 2 or 500m
    #[arg(long, value_name = "QUANTITY", value_parser = some)]
    cpus: Option<Quantity>,
    /// GPUs of each learner, a whole number
    #[arg(long, value_name = "N", value_parser = whole)]
    gpus: Option<Quantity>,
    /// Memory of each, as 512Mi or 4Gi
    #[arg(long, value_name = "QUANTITY", value_parser = some)]
    memory: Option<Quantity>,
}

pub fn some(text: &str) -> Result<Quantity, String> {
    match quantity::nanos(text) {
        Some(amount) if amount > 0 => Ok(Quantity(text.to_owned())),
        Some(_) => Err("must be greater than zero".to_owned()),
        None => Err("expected a quantity as 2, 500m or 4Gi".to_owned()),
    }
}

fn whole(text: &str) -> Result<Quantity, String> {
    match quantity::whole(text) {
        Some(number) if number >= 1 => Ok(Quantity(text.to_owned())),
        _ => Err("expected a whole number from 1".to_owned()),
    }
}

impl Resources {
    /// What they tell, where there are learners or none.
    pub fn of_roles(&self, learners: bool) -> Result<ReplicaResources> {
        ensure!(
            self.gpus.is_none() || learners,
            "--gpus are those of learners: add --learners=N"
        );
        Ok(self.get())
    }

    pub fn get(&self) -> ReplicaResources {
        ReplicaResources {
            cpus: self.cpus.clone(),
            gpus: self.gpus.clone(),
            memory: self.memory.clone(),
        }
    }
}
