use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::IpAddr,
    sync::{Arc, RwLock},
    time::{Duration, Instant},
};

use di_plan::{PodView, ServiceView};
use tokio::sync::watch;

use crate::{View, by_uid::ByUid, group::Objects, lately::Lately};

/// Namespace and name of a job.
pub type Key = (String, String);

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
}

#[derive(Debug)]
struct Index<V> {
    jobs: HashMap<Key, Objects<V>>,
    addresses: HashMap<IpAddr, Arc<V>>,
    /// All of them: one whose label was changed is still known by the job that it was of.
    by_uid: HashSet<ByUid<V>>,
    /// Counts the changes.
    changes: u64,
    /// Objects that a write of ours returned and the watch has not shown yet, by UID.
    unconfirmed: HashMap<String, (Key, String, Instant)>,
    /// UIDs seen deleted lately: the answer of a create may come after the watch has seen the object go.
    gone: Lately,
    /// How those were at last that the watch showed going lately and to whom that [matters](View::matters_gone), the newest last.
    last: VecDeque<V>,
    /// A list that is under way: when it began, and what it has brought so far.
    listed: Option<(Instant, Vec<Arc<V>>)>,
}

/// Of how many that have gone it is known how they were at last.
const LAST_KEPT: usize = 256;

/// The watch shows an object within this time, or never.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(60);

impl<V> Default for ObjectCache<V> {
    fn default() -> Self {
        Self {
            index: RwLock::new(Index {
                jobs: HashMap::new(),
                addresses: HashMap::new(),
                by_uid: HashSet::new(),
                changes: 0,
                unconfirmed: HashMap::new(),
                gone: Lately::default(),
                last: VecDeque::new(),
                listed: None,
            }),
            version: watch::Sender::new(0),
            synced: watch::Sender::new(false),
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

    /// Reads the objects of a job.
    pub fn read<R>(&self, job: &Key, f: impl FnOnce(&Objects<V>) -> R) -> R {
        self.read_and_gone(job, |objects, _| f(objects))
    }

    /// The same, together with what [`saw_go`](Self::saw_go) tells at that time.
    pub fn read_and_gone<R>(
        &self,
        job: &Key,
        f: impl FnOnce(&Objects<V>, &dyn Fn(&str) -> bool) -> R,
    ) -> R {
        let index = self.lock_read();
        let saw_go = |uid: &str| index.gone.contains(uid);
        match index.jobs.get(job) {
            Some(objects) => f(objects, &saw_go),
            None => f(&Objects::default(), &saw_go),
        }
    }

    /// Copies the objects of a job.
    pub fn of_job(&self, job: &Key) -> Vec<V> {
        self.forget_unconfirmed();
        self.read(job, |objects| objects.iter().cloned().collect())
    }

    /// The object that has this address.
    pub fn by_address(&self, address: IpAddr) -> Option<Arc<V>> {
        self.lock_read().addresses.get(&address).cloned()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.lock_read().jobs.values().map(Objects::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the watch has shown lately how the object of this UID went.
    pub fn saw_go(&self, uid: &str) -> bool {
        self.lock_read().gone.contains(uid)
    }

    /// Counts the changes; waiting for the next one is waiting for this to change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Becomes true once the first list is complete.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Puts in what a create of ours returned, or what was there already; not if the watch has shown it going. Returns whether it is in.
    pub fn created(&self, view: V) -> bool {
        let mut index = self.lock_write();
        if index.gone.contains(view.uid()) {
            return false;
        }
        let known = index
            .jobs
            .get(&view.job())
            .and_then(|objects| objects.get(view.name()))
            .is_some_and(|object| object.uid() == view.uid());
        if !known {
            let mark = (view.job(), view.name().to_owned(), Instant::now());
            index.unconfirmed.insert(view.uid().to_owned(), mark);
            index.put(Arc::new(view));
        }
        drop(index);
        self.bump();
        true
    }

    /// Notes that we asked for the deletion of the object of this UID.
    pub fn deletion_requested(&self, job: &Key, name: &str, uid: &str) {
        self.requested(job, name, uid, V::mark_deleting);
    }

    fn requested(&self, job: &Key, name: &str, uid: &str, note: impl FnOnce(&mut V)) {
        let mut index = self.lock_write();
        let object = index.jobs.get(job).and_then(|objects| objects.get(name));
        if let Some(object) = object.filter(|object| object.uid() == uid) {
            let mut object = object.clone();
            note(&mut object);
            index.put(Arc::new(object));
        }
        drop(index);
        self.bump();
    }

    /// Puts in what the watch showed. Returns the job that it was of, if its label names another by now.
    pub fn applied(&self, view: V) -> Option<Key> {
        let mut index = self.lock_write();
        index.unconfirmed.remove(view.uid());
        let left = index.put(Arc::new(view));
        drop(index);
        self.bump();
        left
    }

    /// Takes out what the watch showed going. Returns the job that it was of.
    pub fn deleted(&self, uid: &str) -> Option<Key> {
        let mut index = self.lock_write();
        index.unconfirmed.remove(uid);
        // Also where it is not known: the answer of its create may come late.
        index.gone.add(uid);
        let left = index.lose(uid);
        drop(index);
        self.bump();
        left
    }

    /// Notes how an object was when the watch showed it going, if that matters.
    pub fn went(&self, last: V) {
        if last.matters_gone() {
            let mut index = self.lock_write();
            if index.last.len() == LAST_KEPT {
                index.last.pop_front();
            }
            index.last.push_back(last);
        }
    }

    /// How the object of this UID was at last, if the watch has shown lately how it went, and [it matters](View::matters_gone).
    pub fn last_of(&self, uid: &str) -> Option<V> {
        let index = self.lock_read();
        let mut newest = index.last.iter().rev();
        newest.find(|last| last.uid() == uid).cloned()
    }

    /// Takes out what the watch showed without the label that names its job: of that one it is gone. Returns the job.
    pub fn unlabelled(&self, uid: &str) -> Option<Key> {
        let mut index = self.lock_write();
        index.unconfirmed.remove(uid);
        let left = index.lose(uid);
        drop(index);
        self.bump();
        left
    }

    pub(crate) fn list_started(&self) {
        self.lock_write().listed = Some((Instant::now(), Vec::new()));
    }

    pub(crate) fn list_brought(&self, view: V) {
        let mut index = self.lock_write();
        let index = &mut *index;
        if let Some((_, listed)) = &mut index.listed {
            // Mostly it is known as it is, and need not be there twice.
            let objects = index.jobs.get(&view.job());
            let known = objects.and_then(|objects| objects.shared(view.name()));
            let known = known.filter(|known| ***known == view).cloned();
            listed.push(known.unwrap_or_else(|| Arc::new(view)));
        }
    }

    /// Replaces everything by what the list brought, and returns the jobs concerned, before and after.
    pub(crate) fn list_complete(&self) -> HashSet<Key> {
        let mut index = self.lock_write();
        let now = Instant::now();
        let (began, listed) = index.listed.take().unwrap_or_else(|| (now, Vec::new()));
        let mut concerned: HashSet<Key> = index.jobs.keys().cloned().collect();
        // What we wrote while the list was under way may be missing from it. What was there before and is missing has gone since.
        index.unconfirmed.retain(|_, (_, _, since)| *since >= began);
        let unconfirmed: Vec<Arc<V>> = index
            .unconfirmed
            .values()
            .filter_map(|(job, name, _)| index.jobs.get(job)?.shared(name).cloned())
            .collect();
        let before = std::mem::take(&mut index.jobs);
        index.addresses.clear();
        index.by_uid.clear();
        for view in unconfirmed {
            index.put(view);
        }
        for view in listed {
            concerned.insert(view.job());
            index.unconfirmed.remove(view.uid());
            index.put(view);
        }
        // What went while nobody watched.
        let is_there = |old: &V| {
            let objects = index.jobs.get(&old.job());
            objects
                .and_then(|objects| objects.get(old.name()))
                .is_some_and(|now| now.uid() == old.uid())
        };
        let gone = before
            .values()
            .flat_map(Objects::iter)
            .filter(|old| !is_there(old));
        for uid in gone.map(V::uid).collect::<Vec<_>>() {
            index.gone.add(uid);
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

impl PodCache {
    /// Notes that the kubelet of the pod of this UID was told to end it where it is.
    pub fn end_requested(&self, job: &Key, name: &str, uid: &str) {
        self.requested(job, name, uid, |pod| pod.told_to_end = true);
    }
}

impl<V: View> Index<V> {
    /// Puts an object in its place. Returns the job that it was of, if its label names another by now: of that one it is gone.
    fn put(&mut self, view: Arc<V>) -> Option<Key> {
        let job = view.job();
        let before = self.by_uid.get(view.uid()).map(|known| known.0.clone());
        let known = before.as_ref().map(|before| before.job());
        let left = known.filter(|known| *known != job);
        if left.is_some() {
            self.lose(view.uid());
        }
        self.changes += 1;
        for address in view.addresses() {
            let holder = self.addresses.get(address);
            // Whoever is seen coming to an address has it. One that has long had it may have lost it to another, and takes it from nobody.
            let takes = |holder: &V| match &before {
                Some(before) => !before.addresses().contains(address),
                None => view.has_rather(holder),
            };
            if holder.is_none_or(|holder| holder.uid() == view.uid() || takes(holder)) {
                self.addresses.insert(*address, view.clone());
            }
        }
        let objects = self.jobs.entry(job).or_default();
        if let Some(old) = objects.put(view.clone(), self.changes) {
            self.forget_addresses(&old);
            self.by_uid.remove(old.uid());
        }
        self.by_uid.replace(ByUid(view));
        left
    }

    /// Takes out the object of this UID, of whichever job it is, and notes that it went. Returns the job.
    fn lose(&mut self, uid: &str) -> Option<Key> {
        let known = self.by_uid.get(uid)?.0.clone();
        let job = known.job();
        self.gone.add(uid);
        self.take(&job, known.name(), uid);
        Some(job)
    }

    fn take(&mut self, job: &Key, name: &str, uid: &str) {
        self.changes += 1;
        let Some(objects) = self.jobs.get_mut(job) else {
            return;
        };
        if objects.get(name).is_none_or(|object| object.uid() != uid) {
            return;
        }
        let old = objects.take(name, self.changes);
        if objects.is_empty() {
            self.jobs.remove(job);
        }
        self.by_uid.remove(uid);
        if let Some(old) = old {
            self.forget_addresses(&old);
        }
    }

    /// Forgets the addresses of an object, but for those that its next state or another object has by now.
    fn forget_addresses(&mut self, old: &Arc<V>) {
        for address in old.addresses() {
            let now = self.addresses.get(address);
            if now.is_some_and(|now| Arc::ptr_eq(now, old)) {
                self.addresses.remove(address);
            }
        }
    }
}

#[cfg(test)]
mod tests;
