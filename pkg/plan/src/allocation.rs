//! Splits the GPUs of a learner group into pods.

use std::collections::BTreeMap;

/// A policy that splits GPUs into pods.
pub trait Allocation {
    /// The GPUs of each pod: at least one per pod, `gpus` in total.
    ///
    /// `nodes` are the GPUs of each node that accepts such pods.
    fn split_gpus(&self, gpus: i32, nodes: &[i32]) -> Vec<i32>;
}

/// Fills nodes of the most common size: one pod per full node, and one pod for the remaining GPUs.
///
/// If no node has GPUs, one pod gets all of them, and the scheduler reports that it does not fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimpleAllocation;

impl Allocation for SimpleAllocation {
    fn split_gpus(&self, gpus: i32, nodes: &[i32]) -> Vec<i32> {
        let mut sizes: BTreeMap<i32, usize> = BTreeMap::new();
        for size in nodes.iter().filter(|size| **size > 0) {
            *sizes.entry(*size).or_default() += 1;
        }
        // `max_by_key` returns the last maximum: of equally common sizes, the largest.
        let common = sizes.into_iter().max_by_key(|(_, count)| *count);
        let size = common.map_or(gpus, |(size, _)| size);
        if gpus <= size {
            return vec![gpus];
        }
        let rest = gpus % size;
        let full = (0..gpus / size).map(|_| size);
        full.chain((rest > 0).then_some(rest)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pods_fill_nodes_of_the_most_common_size() {
        for (gpus, nodes, split) in [
            (4, &[][..], &[4][..]),
            (4, &[0, 0], &[4]),
            (4, &[8], &[4]),
            (8, &[8, 8, 4], &[8]),
            (8, &[4, 8, 4], &[4, 4]),
            (10, &[4, 8, 4, 1], &[4, 4, 2]),
            (3, &[1], &[1, 1, 1]),
            (16, &[8], &[8, 8]),
            (8, &[4, 8], &[8]),
            (9, &[2, 2, 8, 8], &[8, 1]),
        ] {
            assert_eq!(
                SimpleAllocation.split_gpus(gpus, nodes),
                split,
                "{gpus} on {nodes:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn split_keeps_all_gpus_and_no_pod_is_empty(gpus in 1..=1024, nodes in proptest::collection::vec(0..17, 0..20)) {
            let split = SimpleAllocation.split_gpus(gpus, &nodes);
            prop_assert_eq!(split.iter().sum::<i32>(), gpus);
            prop_assert!(split.iter().all(|share| *share > 0));
            let largest = nodes.iter().copied().max().filter(|gpus| *gpus > 0);
            prop_assert!(split.iter().all(|share| largest.is_none_or(|largest| *share <= largest)));
        }
    }
}
