//! Shares of the resources of a logic learner.

use di_api::{
    Ddp, ReplicaResources,
    quantity::{NANO, nanos},
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Part of a logic learner's processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    start: i128,
    end: i128,
    all: i128,
}

/// CPUs are shared in thousandths, as Kubernetes counts them.
const MILLI: i128 = NANO / 1000;

impl Share {
    /// Of the `gpus` processes from this place on.
    pub fn of(place: &Ddp, gpus: i32) -> Self {
        Self {
            start: place.start_rank.into(),
            end: i128::from(place.start_rank) + i128::from(gpus),
            all: place.world_size.max(1).into(),
        }
    }

    /// Its part of a quantity of CPUs or bytes; the parts of all add up to the whole. Others are not shared.
    pub fn part(self, resource: &str, quantity: &Quantity) -> Quantity {
        let grain = match resource {
            "cpu" => MILLI,
            "memory" => NANO,
            _ => return quantity.clone(),
        };
        let whole = self.start == 0 && self.end == self.all;
        let Some(amount) = nanos(&quantity.0).filter(|_| !whole) else {
            return quantity.clone();
        };
        let grains = amount / grain;
        let until = |rank: i128| grains.saturating_mul(rank) / self.all;
        let part = until(self.end) - until(self.start);
        Quantity(match resource {
            "cpu" if part % 1000 != 0 => format!("{part}m"),
            "cpu" => (part / 1000).to_string(),
            _ => bytes(part),
        })
    }

    /// Its part of what was asked for the whole; the GPUs are `gpus`.
    pub fn resources(self, of: &ReplicaResources, gpus: i32) -> ReplicaResources {
        let part = |resource, quantity: &Option<Quantity>| {
            let quantity = quantity.as_ref()?;
            Some(self.part(resource, quantity))
        };
        ReplicaResources {
            cpus: part("cpu", &of.cpus),
            gpus: Some(Quantity(gpus.to_string())),
            memory: part("memory", &of.memory),
        }
    }
}

fn bytes(number: i128) -> String {
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

    fn parts(resource: &str, quantity: &str, gpus: &[i32]) -> Vec<String> {
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
            let share = Share::of(&place, *gpus);
            all.push(share.part(resource, &Quantity(quantity.into())).0);
            start_rank += gpus;
        }
        all
    }

    #[test]
    fn parts_are_as_large_as_their_gpus() {
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
                parts(resource, quantity, gpus),
                expected,
                "{resource} {quantity}"
            );
        }
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_whole(bytes in 0..1_u64 << 50, gpus in proptest::collection::vec(1..9_i32, 1..20)) {
            for (resource, grain) in [("cpu", "m"), ("memory", "")] {
                let quantity = format!("{bytes}{grain}");
                let sum: i128 = parts(resource, &quantity, &gpus).iter().map(|part| nanos(part).unwrap()).sum();
                prop_assert_eq!(sum, nanos(&quantity).unwrap());
            }
        }
    }
}
