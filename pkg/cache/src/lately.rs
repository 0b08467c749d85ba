use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

/// How many are remembered.
const KEPT: usize = 4096;

/// The last things that were added, to be asked for.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    all: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
}

impl Lately {
    pub(crate) fn add(&mut self, what: &str) {
        let what: Arc<str> = what.into();
        if !self.all.insert(what.clone()) {
            return;
        }
        self.order.push_back(what);
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }

    pub(crate) fn contains(&self, what: &str) -> bool {
        self.all.contains(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut lately = Lately::default();
        for i in 0..=KEPT {
            lately.add(&i.to_string());
        }
        lately.add("1");
        assert!(!lately.contains("0"));
        assert!(lately.contains("1") && lately.contains(&KEPT.to_string()));
        assert_eq!(lately.all.len(), lately.order.len());
    }
}
