mod index;

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{Arc, RwLock},
    time::{Duration, Instant},
};

use di_plan::{PodView, ServiceView};
use tokio::sync::watch;

use self::index::Index;
use crate::{key::Key, versioned_map::VersionedMap, view::View};

/// Pods by job.
pub type PodCache = ObjectCache<PodView>;
/// Services by job.
pub type ServiceCache = ObjectCache<ServiceView>;

/// Objects by job, from a watch and from own writes. See docs/decisions/0001.
#[derive(Debug)]
pub struct ObjectCache<V> {
    index: RwLock<Index<V>>,
    change_notifier: watch::Sender<u64>,
    is_synced: watch::Sender<bool>,
}

/// Number of final states that are kept.
const MAX_FINAL_STATES: usize = 256;

/// An own create that the watch does not show within this time is dropped.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(60);

impl<V> Default for ObjectCache<V> {
    fn default() -> Self {
        Self {
            index: RwLock::default(),
            change_notifier: watch::Sender::new(0),
            is_synced: watch::Sender::new(false),
        }
    }
}

impl<V: View> ObjectCache<V> {
    /// A synced cache with these objects, for tests.
    #[doc(hidden)]
    pub fn with_objects(objects: impl IntoIterator<Item = V>) -> Self {
        let cache = Self::default();
        cache.on_init();
        for object in objects {
            cache.on_init_apply(object);
        }
        cache.on_init_done();
        cache
    }

    /// Calls `f` with the objects of a job, under the read lock.
    pub fn read_objects<R>(&self, job: &Key, f: impl FnOnce(&VersionedMap<V>) -> R) -> R {
        self.read_with_deleted(job, |objects, _| f(objects))
    }

    /// Like [`read_objects`](Self::read_objects), with [`was_deleted`](Self::was_deleted) at the
    /// same moment.
    pub fn read_with_deleted<R>(
        &self,
        job: &Key,
        f: impl FnOnce(&VersionedMap<V>, &dyn Fn(&str) -> bool) -> R,
    ) -> R {
        let index = self.lock_read();
        let was_deleted = |uid: &str| index.deleted.contains(uid);
        match index.jobs.get(job) {
            Some(objects) => f(objects, &was_deleted),
            None => f(&VersionedMap::default(), &was_deleted),
        }
    }

    /// Copies of the objects of a job.
    pub fn list_by_job(&self, job: &Key) -> Vec<V> {
        self.expire_unconfirmed();
        self.read_objects(job, |objects| objects.iter().cloned().collect())
    }

    /// The object that owns this pod IP.
    pub fn find_by_pod_ip(&self, pod_ip: IpAddr) -> Option<Arc<V>> {
        self.lock_read().pod_ip_owners.get(&pod_ip).cloned()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.lock_read().jobs.values().map(VersionedMap::len).sum()
    }

    /// Whether the cache has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the watch has recently shown the deletion of the object with this UID.
    pub fn was_deleted(&self, uid: &str) -> bool {
        self.lock_read().deleted.contains(uid)
    }

    /// Whether an object that [was deleted](Self::was_deleted) may only have lost its job label.
    pub fn may_be_unlabeled(&self, uid: &str) -> bool {
        self.lock_read().deleted_or_unlabeled.contains(uid)
    }

    /// A receiver that is notified of each change of the cache.
    pub fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.change_notifier.subscribe()
    }

    /// A receiver that becomes true when the first list is complete.
    pub fn subscribe_synced(&self) -> watch::Receiver<bool> {
        self.is_synced.subscribe()
    }

    /// Stores the object that an own create returned or found.
    ///
    /// Returns `false`, and stores nothing, if the watch has already shown its deletion.
    pub fn record_created(&self, view: V) -> bool {
        let mut index = self.lock_write();
        if index.deleted.contains(view.uid()) {
            return false;
        }
        let is_stored = index
            .jobs
            .get(&view.job_key())
            .and_then(|objects| objects.get(view.name()))
            .is_some_and(|object| object.uid() == view.uid());
        if !is_stored {
            let mark = (view.job_key(), view.name().to_owned(), Instant::now());
            index.unconfirmed.insert(view.uid().to_owned(), mark);
            index.insert_object(Arc::new(view));
        }
        drop(index);
        self.notify_changed();
        true
    }

    /// Marks the object with this UID as deleting, after an own delete request.
    pub fn record_deletion_request(&self, job: &Key, name: &str, uid: &str) {
        self.update_object(job, name, uid, V::mark_deleting);
    }

    /// Stores the object that an own write returned, unless the watch has shown its deletion.
    ///
    /// The watch may show an older version later. Writes that follow from it are rejected, because
    /// they name that version.
    pub fn record_write(&self, view: V) {
        let (job, name, uid) = (
            view.job_key(),
            view.name().to_owned(),
            view.uid().to_owned(),
        );
        self.update_object(&job, &name, &uid, |known| *known = view);
    }

    fn update_object(&self, job: &Key, name: &str, uid: &str, update: impl FnOnce(&mut V)) {
        let mut index = self.lock_write();
        let object = index.jobs.get(job).and_then(|objects| objects.get(name));
        if let Some(object) = object.filter(|object| object.uid() == uid) {
            let mut object = object.clone();
            update(&mut object);
            index.insert_object(Arc::new(object));
        }
        drop(index);
        self.notify_changed();
    }

    /// Stores an object of a watch event. Returns its former job if the job label has changed.
    pub fn on_apply(&self, view: V) -> Option<Key> {
        let mut index = self.lock_write();
        index.unconfirmed.remove(view.uid());
        let former_job = index.insert_object(Arc::new(view));
        drop(index);
        self.notify_changed();
        former_job
    }

    /// Removes an object that the watch showed as deleted. Returns its job.
    pub fn on_delete(&self, uid: &str) -> Option<Key> {
        let mut index = self.lock_write();
        index.unconfirmed.remove(uid);
        // Also for an unknown object: the response of its create may arrive late.
        index.deleted.insert(uid);
        let job = index.remove_by_uid(uid);
        drop(index);
        self.notify_changed();
        job
    }

    /// Removes an object that was deleted or has lost its job label. Returns its job.
    pub fn on_delete_or_unlabel(&self, uid: &str) -> Option<Key> {
        let mut index = self.lock_write();
        // An own request may have deleted it.
        if !index
            .by_uid
            .get(uid)
            .is_some_and(|known| known.0.is_deleting())
        {
            index.deleted_or_unlabeled.insert(uid);
        }
        drop(index);
        self.on_delete(uid)
    }

    /// Keeps the final state of a deleted object if [its kind needs
    /// it](View::should_keep_final_state).
    pub fn record_final_state(&self, state: V) {
        if state.should_keep_final_state() {
            let mut index = self.lock_write();
            if index.final_states.len() == MAX_FINAL_STATES {
                index.final_states.pop_front();
            }
            index.final_states.push_back(state);
        }
    }

    /// The final state of a recently deleted object, if [it was
    /// kept](View::should_keep_final_state).
    pub fn final_state(&self, uid: &str) -> Option<V> {
        let index = self.lock_read();
        let mut newest_first = index.final_states.iter().rev();
        newest_first.find(|state| state.uid() == uid).cloned()
    }

    pub(crate) fn on_init(&self) {
        self.lock_write().listed = Some((Instant::now(), Vec::new()));
    }

    pub(crate) fn on_init_apply(&self, view: V) {
        let mut index = self.lock_write();
        let index = &mut *index;
        if let Some((_, listed)) = &mut index.listed {
            // Share the stored object if it is unchanged: a resync would double the memory.
            let objects = index.jobs.get(&view.job_key());
            let known = objects.and_then(|objects| objects.get_shared(view.name()));
            let known = known.filter(|known| ***known == view).cloned();
            listed.push(known.unwrap_or_else(|| Arc::new(view)));
        }
    }

    /// Replaces all objects by those of the list. Returns the jobs that had or have objects.
    pub(crate) fn on_init_done(&self) -> HashSet<Key> {
        let mut index = self.lock_write();
        let now = Instant::now();
        let (began, listed) = index.listed.take().unwrap_or_else(|| (now, Vec::new()));
        let mut changed_jobs: HashSet<Key> = index.jobs.keys().cloned().collect();
        // The list may miss objects that were created after its start, but no older ones.
        index.unconfirmed.retain(|_, (_, _, since)| *since >= began);
        let unconfirmed: Vec<Arc<V>> = index
            .unconfirmed
            .values()
            .filter_map(|(job, name, _)| index.jobs.get(job)?.get_shared(name).cloned())
            .collect();
        let before = std::mem::take(&mut index.jobs);
        index.pod_ip_owners.clear();
        index.by_uid.clear();
        for view in unconfirmed {
            index.insert_object(view);
        }
        for view in listed {
            changed_jobs.insert(view.job_key());
            index.unconfirmed.remove(view.uid());
            index.insert_object(view);
        }
        // Objects that are missing from the list were deleted while no watch was open.
        let is_listed = |old: &V| {
            let objects = index.jobs.get(&old.job_key());
            objects
                .and_then(|objects| objects.get(old.name()))
                .is_some_and(|current| current.uid() == old.uid())
        };
        let deleted = before
            .values()
            .flat_map(VersionedMap::iter)
            .filter(|old| !is_listed(old));
        for uid in deleted.map(V::uid).collect::<Vec<_>>() {
            index.deleted.insert(uid);
            index.deleted_or_unlabeled.insert(uid);
        }
        drop(index);
        self.is_synced.send_replace(true);
        self.notify_changed();
        changed_jobs
    }

    fn expire_unconfirmed(&self) {
        let is_expired = |since: &Instant| since.elapsed() > CONFIRM_TIMEOUT;
        if !self
            .lock_read()
            .unconfirmed
            .values()
            .any(|(_, _, since)| is_expired(since))
        {
            return;
        }
        let mut index = self.lock_write();
        let expired: Vec<_> = index
            .unconfirmed
            .iter()
            .filter(|(_, (_, _, since))| is_expired(since))
            .map(|(uid, (job, name, _))| (uid.clone(), job.clone(), name.clone()))
            .collect();
        for (uid, job, name) in expired {
            index.unconfirmed.remove(&uid);
            index.remove_object(&job, &name, &uid);
        }
    }

    fn notify_changed(&self) {
        self.change_notifier.send_modify(|changes| *changes += 1);
    }

    fn lock_read(&self) -> std::sync::RwLockReadGuard<'_, Index<V>> {
        // A panic under the lock can leave a partial update. The next list repairs it.
        self.index
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn lock_write(&self) -> std::sync::RwLockWriteGuard<'_, Index<V>> {
        self.index
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl PodCache {
    /// Marks a pod after an own write has set its `activeDeadlineSeconds`. See docs/decisions/0017.
    pub fn record_deadline_request(&self, job: &Key, name: &str, uid: &str) {
        self.update_object(job, name, uid, |pod| pod.deadline_requested = true);
    }
}

#[cfg(test)]
mod tests;
