use anyhow::{Result, ensure};
use clap::Args;
use di_api::{ReplicaResources, quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The flags for the resources of a replica.
#[derive(Clone, Debug, Args)]
pub struct Resources {
    /// CPUs of each replica, such as 2 or 500m
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    cpus: Option<Quantity>,
    /// GPUs of each learner, an integer
    #[arg(long, value_name = "N", value_parser = parse_gpu_count)]
    gpus: Option<Quantity>,
    /// Memory of each replica, such as 512Mi or 4Gi
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    memory: Option<Quantity>,
}

pub fn parse_quantity(text: &str) -> Result<Quantity, String> {
    match quantity::parse_nanos(text) {
        Some(amount) if amount > 0 => Ok(Quantity(text.to_owned())),
        Some(_) => Err("must be greater than zero".to_owned()),
        None => Err("expected a quantity such as 2, 500m or 4Gi".to_owned()),
    }
}

fn parse_gpu_count(text: &str) -> Result<Quantity, String> {
    match quantity::parse_count(text) {
        Some(number) if number >= 1 => Ok(Quantity(text.to_owned())),
        _ => Err("expected an integer of at least 1".to_owned()),
    }
}

impl Resources {
    /// The resources; fails if GPUs are set but no learners.
    pub fn for_roles(&self, learners: bool) -> Result<ReplicaResources> {
        ensure!(
            self.gpus.is_none() || learners,
            "--gpus applies only to learners: add --learners=N"
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
