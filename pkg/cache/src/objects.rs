use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    net::IpAddr,
    sync::RwLock,
    time::{Duration, Instant},
};

use di_plan::{PodView, ServiceView};
use tokio::sync::watch;

use crate::WatchHealth;

/// Namespace and name of a job.
pub type Key = (String, String);

/// What is cached of an object that belongs to a job.
pub trait View: Clone + Send + Sync {
    /// Key of its job.
    fn job(&self) -> Key;
    /// Its name.
    fn name(&self) -> &str;
    /// Its UID.
    fn uid(&self) -> &str;
    /// Addresses by which it is known.
    fn addresses(&self) -> &[IpAddr] {
        &[]
    }
    /// Notes that its deletion was asked for.
    fn mark_deleting(&mut self);
}

impl View for PodView {
    fn job(&self) -> Key {
        (self.namespace.clone(), self.job.clone())
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn addresses(&self) -> &[IpAddr] {
        // The address of a pod that has ended may be another's by now.
        if self.uses_cluster() { &self.ips } else { &[] }
    }
    fn mark_deleting(&mut self) {
        self.deleting = true;
    }
}

impl View for ServiceView {
    fn job(&self) -> Key {
        (self.namespace.clone(), self.job.clone())
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn mark_deleting(&mut self) {
        self.deleting = true;
    }
}

/// Pods by job.
pub type PodCache = ObjectCache<PodView>;
/// Services by job.
pub type ServiceCache = ObjectCache<ServiceView>;

/// Objects by job, fed by a watch and by one's own writes.
#[derive(Debug)]
pub struct ObjectCache<V> {
    index: RwLock<Index<V>>,
    version: watch::Sender<u64>,
    synced: watch::Sender<bool>,
    health: WatchHealth,
}

#[derive(Debug)]
struct Index<V> {
    jobs: HashMap<Key, BTreeMap<String, V>>,
    addresses: HashMap<IpAddr, (Key, String)>,
    /// Objects that a write of ours returned and the watch has not shown yet, by UID.
    unconfirmed: HashMap<String, (Key, String, Instant)>,
    /// UIDs seen deleted lately: the answer of a create may come after the watch has seen the object go.
    gone: VecDeque<String>,
    /// What a list that is under way has brought so far.
    listed: Option<Vec<V>>,
}

/// The watch shows an object within this time, or never.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(60);
const GONE_KEPT: usize = 4096;

impl<V> Default for ObjectCache<V> {
    fn default() -> Self {
        Self {
            index: RwLock::new(Index {
                jobs: HashMap::new(),
                addresses: HashMap::new(),
                unconfirmed: HashMap::new(),
                gone: VecDeque::new(),
                listed: None,
            }),
            version: watch::Sender::new(0),
            synced: watch::Sender::new(false),
            health: WatchHealth::default(),
        }
    }
}

impl<V: View> ObjectCache<V> {
    /// A cache whose first list is complete and brought these objects, for tests.
    #[doc(hidden)]
    pub fn holding(objects: impl IntoIterator<Item = V>) -> Self {
        let cache = Self::default();
        cache.list_started();
        for object in objects {
            cache.list_brought(object);
        }
        cache.list_complete();
        cache
    }

    /// Reads the objects of a job, by name.
    pub fn read<R>(&self, job: &Key, f: impl FnOnce(&BTreeMap<String, V>) -> R) -> R {
        let index = self.lock_read();
        match index.jobs.get(job) {
            Some(objects) => f(objects),
            None => f(&BTreeMap::new()),
        }
    }

    /// Copies the objects of a job.
    pub fn of_job(&self, job: &Key) -> Vec<V> {
        self.forget_unconfirmed();
        self.read(job, |objects| objects.values().cloned().collect())
    }

    /// The object that has this address.
    pub fn by_address(&self, address: IpAddr) -> Option<V> {
        let index = self.lock_read();
        let (job, name) = index.addresses.get(&address)?;
        index.jobs.get(job)?.get(name).cloned()
    }

    /// Whether the watch works.
    pub fn health(&self) -> &WatchHealth {
        &self.health
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.lock_read().jobs.values().map(BTreeMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the watch has shown lately how the object of this UID went.
    pub fn saw_go(&self, uid: &str) -> bool {
        self.lock_read().gone.iter().any(|gone| gone == uid)
    }

    /// Counts the changes; waiting for the next one is waiting for this to change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Becomes true once the first list is complete.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Puts in what a create of ours returned.
    pub fn created(&self, view: V) {
        let mut index = self.lock_write();
        if index.gone.iter().any(|uid| uid == view.uid()) {
            return;
        }
        let known = index
            .jobs
            .get(&view.job())
            .and_then(|objects| objects.get(view.name()))
            .is_some_and(|object| object.uid() == view.uid());
        if !known {
            let mark = (view.job(), view.name().to_owned(), Instant::now());
            index.unconfirmed.insert(view.uid().to_owned(), mark);
            index.put(view);
        }
        drop(index);
        self.bump();
    }

    /// Notes that we asked for the deletion of the object of this UID.
    pub fn deletion_requested(&self, job: &Key, name: &str, uid: &str) {
        let mut index = self.lock_write();
        if let Some(object) = index.jobs.get_mut(job).and_then(|o| o.get_mut(name))
            && object.uid() == uid
        {
            object.mark_deleting();
        }
        drop(index);
        self.bump();
    }

    pub(crate) fn applied(&self, view: V) {
        let mut index = self.lock_write();
        index.unconfirmed.remove(view.uid());
        index.put(view);
        drop(index);
        self.bump();
    }

    pub(crate) fn deleted(&self, view: &V) {
        let mut index = self.lock_write();
        index.unconfirmed.remove(view.uid());
        index.gone.push_back(view.uid().to_owned());
        if index.gone.len() > GONE_KEPT {
            index.gone.pop_front();
        }
        index.take(&view.job(), view.name(), view.uid());
        drop(index);
        self.bump();
    }

    pub(crate) fn list_started(&self) {
        self.lock_write().listed = Some(Vec::new());
    }

    pub(crate) fn list_brought(&self, view: V) {
        let mut index = self.lock_write();
        if let Some(listed) = &mut index.listed {
            listed.push(view);
        }
    }

    /// Replaces everything by what the list brought, and returns the jobs concerned, before and after.
    pub(crate) fn list_complete(&self) -> HashSet<Key> {
        let mut index = self.lock_write();
        let listed = index.listed.take().unwrap_or_default();
        let mut concerned: HashSet<Key> = index.jobs.keys().cloned().collect();
        // What we wrote while the list was under way may be missing from it.
        let unconfirmed: Vec<V> = index
            .unconfirmed
            .values()
            .filter_map(|(job, name, _)| index.jobs.get(job)?.get(name).cloned())
            .collect();
        index.jobs.clear();
        index.addresses.clear();
        for view in unconfirmed {
            index.put(view);
        }
        for view in listed {
            concerned.insert(view.job());
            index.unconfirmed.remove(view.uid());
            index.put(view);
        }
        drop(index);
        self.synced.send_replace(true);
        self.bump();
        concerned
    }

    fn forget_unconfirmed(&self) {
        let late = |since: &Instant| since.elapsed() > CONFIRMED_WITHIN;
        if !self
            .lock_read()
            .unconfirmed
            .values()
            .any(|(_, _, since)| late(since))
        {
            return;
        }
        let mut index = self.lock_write();
        let expired: Vec<_> = index
            .unconfirmed
            .iter()
            .filter(|(_, (_, _, since))| late(since))
            .map(|(uid, (job, name, _))| (uid.clone(), job.clone(), name.clone()))
            .collect();
        for (uid, job, name) in expired {
            index.unconfirmed.remove(&uid);
            index.take(&job, &name, &uid);
        }
    }

    fn bump(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn lock_read(&self) -> std::sync::RwLockReadGuard<'_, Index<V>> {
        // A panic while the lock was held cannot leave a half-made change that matters more than going on.
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

impl<V: View> Index<V> {
    fn put(&mut self, view: V) {
        let job = view.job();
        let name = view.name().to_owned();
        for address in view.addresses() {
            self.addresses.insert(*address, (job.clone(), name.clone()));
        }
        let old = self
            .jobs
            .entry(job.clone())
            .or_default()
            .insert(name.clone(), view);
        if let Some(old) = old {
            self.forget_addresses(&job, &name, old.addresses());
        }
    }

    fn take(&mut self, job: &Key, name: &str, uid: &str) {
        let Some(objects) = self.jobs.get_mut(job) else {
            return;
        };
        if objects.get(name).is_none_or(|object| object.uid() != uid) {
            return;
        }
        let old = objects.remove(name);
        if objects.is_empty() {
            self.jobs.remove(job);
        }
        if let Some(old) = old {
            self.forget_addresses(job, name, old.addresses());
        }
    }

    /// Forgets addresses that this object no longer has; another may have been given them since.
    fn forget_addresses(&mut self, job: &Key, name: &str, old: &[IpAddr]) {
        for address in old {
            let kept = self
                .jobs
                .get(job)
                .and_then(|objects| objects.get(name))
                .is_some_and(|object| object.addresses().contains(address));
            let owned = self
                .addresses
                .get(address)
                .is_some_and(|(j, n)| j == job && n == name);
            if owned && !kept {
                self.addresses.remove(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, uid: &str) -> ServiceView {
        ServiceView {
            name: name.into(),
            namespace: "ns".into(),
            uid: uid.into(),
            job: "job".into(),
            owner: None,
            deleting: false,
        }
    }

    fn key() -> Key {
        ("ns".into(), "job".into())
    }

    fn names(cache: &ServiceCache) -> Vec<String> {
        cache.of_job(&key()).into_iter().map(|s| s.name).collect()
    }

    #[test]
    fn own_writes_are_seen_at_once_and_survive_an_older_list() {
        let cache = ServiceCache::default();
        cache.list_started();
        cache.created(service("a", "1"));
        assert_eq!(names(&cache), ["a"]);
        cache.list_complete();
        assert_eq!(names(&cache), ["a"]);
        cache.applied(service("a", "1"));
        cache.list_started();
        cache.list_complete();
        assert!(names(&cache).is_empty(), "once seen, a list decides");
    }

    #[test]
    fn an_answer_that_comes_after_the_object_went_changes_nothing() {
        let cache = ServiceCache::default();
        cache.applied(service("a", "1"));
        cache.deleted(&service("a", "1"));
        cache.created(service("a", "1"));
        assert!(names(&cache).is_empty());
        cache.created(service("a", "2"));
        assert_eq!(names(&cache), ["a"]);
    }

    #[test]
    fn a_late_deletion_leaves_the_next_object_of_that_name() {
        let cache = ServiceCache::default();
        cache.created(service("a", "2"));
        cache.deleted(&service("a", "1"));
        assert_eq!(names(&cache), ["a"]);
    }

    #[test]
    fn deletions_asked_for_are_noted_by_uid() {
        let cache = ServiceCache::default();
        cache.applied(service("a", "2"));
        cache.deletion_requested(&key(), "a", "1");
        assert!(!cache.of_job(&key())[0].deleting);
        cache.deletion_requested(&key(), "a", "2");
        assert!(cache.of_job(&key())[0].deleting);
    }
}
