use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use crate::{by_uid::ByUid, key::Key, recent::RecentSet, versioned_map::VersionedMap, view::View};

/// The objects of an [`ObjectCache`](super::ObjectCache), and how to find them.
#[derive(Debug)]
pub(super) struct Index<V> {
    pub(super) jobs: HashMap<Key, VersionedMap<V>>,
    /// The object that owns each pod IP.
    pub(super) pod_ip_owners: HashMap<IpAddr, Arc<V>>,
    /// All objects. Finds the former job of an object, which its job label named before a change.
    pub(super) by_uid: HashSet<ByUid<V>>,
    /// Number of changes so far; the revision of each changed [`VersionedMap`].
    pub(super) revision: u64,
    /// Own creates that the watch has not shown, by UID: job, name and time of the create. They
    /// replace the expectations of client-go's controllers: no object is created twice meanwhile.
    pub(super) unconfirmed: HashMap<String, (Key, String, Instant)>,
    /// UIDs of recently deleted objects. The response of a create may arrive after the deletion.
    pub(super) deleted: RecentSet,
    /// UIDs of recently deleted objects that may exist: the watch shows an object without its job
    /// label as deleted too.
    pub(super) deleted_or_unlabeled: RecentSet,
    /// Final states of recently deleted objects, the newest at the back. See
    /// [`View::should_keep_final_state`].
    pub(super) final_states: VecDeque<V>,
    /// The list in progress: its start and the objects received so far.
    pub(super) listed: Option<(Instant, Vec<Arc<V>>)>,
}

impl<V> Default for Index<V> {
    fn default() -> Self {
        Self {
            jobs: HashMap::new(),
            pod_ip_owners: HashMap::new(),
            by_uid: HashSet::new(),
            revision: 0,
            unconfirmed: HashMap::new(),
            deleted: RecentSet::default(),
            deleted_or_unlabeled: RecentSet::default(),
            final_states: VecDeque::new(),
            listed: None,
        }
    }
}

impl<V: View> Index<V> {
    /// Stores an object. If its job label has changed, removes it from its former job and returns
    /// that job.
    pub(super) fn insert_object(&mut self, view: Arc<V>) -> Option<Key> {
        let job = view.job_key();
        let before = self.by_uid.get(view.uid()).map(|known| known.0.clone());
        let known_job = before.as_ref().map(|before| before.job_key());
        let former_job = known_job.filter(|known_job| *known_job != job);
        if former_job.is_some() {
            self.remove_by_uid(view.uid());
            self.deleted_or_unlabeled.insert(view.uid());
        }
        self.revision += 1;
        for pod_ip in view.pod_ips() {
            let owner = self.pod_ip_owners.get(pod_ip);
            // The pod that was assigned a pod IP last owns it. An update of an older pod that still
            // reports the IP must not take it back, because Kubernetes reuses pod IPs.
            let takes_over = |owner: &V| match &before {
                Some(before) => !before.pod_ips().contains(pod_ip),
                None => view.owns_shared_ip(owner),
            };
            if owner.is_none_or(|owner| owner.uid() == view.uid() || takes_over(owner)) {
                self.pod_ip_owners.insert(*pod_ip, view.clone());
            }
        }
        let objects = self.jobs.entry(job).or_default();
        if let Some(old) = objects.insert_object(view.clone(), self.revision) {
            self.remove_pod_ips(&old);
            self.by_uid.remove(old.uid());
        }
        self.by_uid.replace(ByUid(view));
        former_job
    }

    /// Removes the object with this UID from its job and records the deletion. Returns the job.
    pub(super) fn remove_by_uid(&mut self, uid: &str) -> Option<Key> {
        let known = self.by_uid.get(uid)?.0.clone();
        let job = known.job_key();
        self.deleted.insert(uid);
        self.remove_object(&job, known.name(), uid);
        Some(job)
    }

    pub(super) fn remove_object(&mut self, job: &Key, name: &str, uid: &str) {
        self.revision += 1;
        let Some(objects) = self.jobs.get_mut(job) else {
            return;
        };
        if objects.get(name).is_none_or(|object| object.uid() != uid) {
            return;
        }
        let old = objects.remove_object(name, self.revision);
        if objects.is_empty() {
            self.jobs.remove(job);
        }
        self.by_uid.remove(uid);
        if let Some(old) = old {
            self.remove_pod_ips(&old);
        }
    }

    /// Removes the pod IPs of an old object, except those that a newer object owns.
    fn remove_pod_ips(&mut self, old: &Arc<V>) {
        for pod_ip in old.pod_ips() {
            let owner = self.pod_ip_owners.get(pod_ip);
            if owner.is_some_and(|owner| Arc::ptr_eq(owner, old)) {
                self.pod_ip_owners.remove(pod_ip);
            }
        }
    }
}
