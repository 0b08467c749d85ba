//! The resources of one ddp learner as a share of its learner group.

use di_api::{
    Ddp, ReplicaResources,
    quantity::{NANOS_PER_UNIT, parse_nanos},
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The processes of one ddp learner among all processes of its learner group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceShare {
    start: i128,
    end: i128,
    all: i128,
}

/// The unit in which CPUs are split: 1m, the smallest that Kubernetes accepts.
const MILLI: i128 = NANOS_PER_UNIT / 1000;

impl ResourceShare {
    /// The share of the `gpus` processes that begin at the rank of `place`.
    pub fn for_place(place: &Ddp, gpus: i32) -> Self {
        Self {
            start: place.start_rank.into(),
            end: i128::from(place.start_rank) + i128::from(gpus),
            all: place.world_size.max(1).into(),
        }
    }

    /// The share of a quantity of CPUs or memory. The shares of all ddp learners add up to the
    /// quantity. Quantities of other resources are not split.
    pub fn slice_quantity(self, resource: &str, quantity: &Quantity) -> Quantity {
        let grain = match resource {
            "cpu" => MILLI,
            "memory" => NANOS_PER_UNIT,
            _ => return quantity.clone(),
        };
        let whole = self.start == 0 && self.end == self.all;
        let Some(amount) = parse_nanos(&quantity.0).filter(|_| !whole) else {
            return quantity.clone();
        };
        let grains = amount / grain;
        let grains_before = |rank: i128| grains.saturating_mul(rank) / self.all;
        let slice = grains_before(self.end) - grains_before(self.start);
        Quantity(match resource {
            "cpu" if slice % 1000 != 0 => format!("{slice}m"),
            "cpu" => (slice / 1000).to_string(),
            _ => format_bytes(slice),
        })
    }

    /// The share of the resources of the learner group, with `gpus` GPUs.
    pub fn slice_resources(self, total: &ReplicaResources, gpus: i32) -> ReplicaResources {
        let slice = |resource, quantity: &Option<Quantity>| {
            let quantity = quantity.as_ref()?;
            Some(self.slice_quantity(resource, quantity))
        };
        ReplicaResources {
            cpus: slice("cpu", &total.cpus),
            gpus: Some(Quantity(gpus.to_string())),
            memory: slice("memory", &total.memory),
        }
    }
}

fn format_bytes(number: i128) -> String {
    for (power, suffix) in [(30, "Gi"), (20, "Mi"), (10, "Ki")] {
        if number != 0 && number % (1 << power) == 0 {
            return format!("{}{suffix}", number >> power);
        }
    }
    number.to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slice_all(resource: &str, quantity: &str, gpus: &[i32]) -> Vec<String> {
        let world_size = gpus.iter().sum();
        let mut start_rank = 0;
        let mut all = Vec::new();
        for gpus in gpus {
            let place = Ddp {
                aggregator: "a".into(),
                world_size,
                start_rank,
                master: None,
            };
            let share = ResourceShare::for_place(&place, *gpus);
            all.push(share.slice_quantity(resource, &Quantity(quantity.into())).0);
            start_rank += gpus;
        }
        all
    }

    #[test]
    fn slices_are_proportional_to_gpus() {
        for (resource, quantity, gpus, expected) in [
            ("cpu", "8", &[4, 4][..], &["4", "4"][..]),
            ("cpu", "1", &[8, 8, 4], &["400m", "400m", "200m"]),
            ("cpu", "1", &[1, 1, 1], &["333m", "333m", "334m"]),
            ("memory", "10Gi", &[4, 1], &["8Gi", "2Gi"]),
            ("memory", "1G", &[2, 1], &["666666666", "333333334"]),
            ("memory", "1e3", &[3], &["1e3"]),
            ("ephemeral-storage", "10Gi", &[4, 1], &["10Gi", "10Gi"]),
        ] {
            assert_eq!(
                slice_all(resource, quantity, gpus),
                expected,
                "{resource} {quantity}"
            );
        }
    }

    proptest! {
        #[test]
        fn slices_add_up_to_total(bytes in 0..1_u64 << 50, gpus in proptest::collection::vec(1..9_i32, 1..20)) {
            for (resource, grain) in [("cpu", "m"), ("memory", "")] {
                let quantity = format!("{bytes}{grain}");
                let sum: i128 = slice_all(resource, &quantity, &gpus).iter().map(|slice| parse_nanos(slice).unwrap()).sum();
                prop_assert_eq!(sum, parse_nanos(&quantity).unwrap());
            }
        }
    }
}
