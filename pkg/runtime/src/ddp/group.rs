use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    Limits,
    link::{Call, Link, Message},
};
use crate::{Error, Result, ppo::Ranks};

/// A rank among those of its unit, all of which have met.
#[derive(Debug)]
pub struct Group {
    rank: u32,
    world: u32,
    /// Of rank 0 those to all others, in their order; of another one that to rank 0.
    links: Vec<Link>,
    limits: Limits,
    /// Tasks so far.
    tasks: u64,
}

impl Group {
    pub(super) const fn new(rank: u32, world: u32, links: Vec<Link>, limits: Limits) -> Self {
        Self {
            rank,
            world,
            links,
            limits,
            tasks: 0,
        }
    }

    /// Which one of the ranks this is.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Of rank 0: calls the others to a task, and has all begin once each of them has loaded it, as `load` does it here.
    pub(super) fn call<T>(&mut self, call: &Call, load: impl FnOnce() -> Result<T>) -> Result<T> {
        self.tasks += 1;
        let number = self.tasks;
        let begin = Message::Begin(number, Box::new(call.clone()));
        self.tell_all(&begin)?;
        let loaded = self.all_hear(number).and_then(|()| {
            let loaded = load();
            let ready = self.all_ready(number);
            // One that is lost matters more.
            ready.and_then(|refusal| refusal.map_or(loaded, Err))
        });
        match &loaded {
            Ok(_) => self.tell_all(&Message::Go(number))?,
            Err(error) if error.is_fatal() => {}
            Err(_) => self.tell_all(&Message::Cancel(number))?,
        }
        loaded
    }

    /// Of another rank: the task that it is called to within this time, if it is.
    pub(super) fn called(&mut self, within: Duration) -> Result<Option<(u64, Call)>> {
        let link = self.leader();
        if !link.stirs(within)? {
            return Ok(None);
        }
        match link.hear()? {
            Message::Begin(number, call) => {
                link.tell(&Message::Heard(number))?;
                Ok(Some((number, *call)))
            }
            other => Err(link.out_of_step(format_args!("{other:?}"))),
        }
    }

    /// Of another rank: tells what became of loading a task, and waits for the word to begin; none if it is not to be done.
    pub(super) fn join_in<T>(&mut self, number: u64, loaded: Result<T>) -> Result<Option<T>> {
        // Rank 0 waits for each that long.
        let within = self.limits.hear + 2 * self.limits.step;
        let link = self.leader();
        link.tell(&match &loaded {
            Ok(_) => Message::Ready(number),
            Err(error) => Message::Refused(number, crate::chain(error)),
        })?;
        if !link.stirs(within)? {
            return Err(link.out_of_step("it is silent"));
        }
        match link.hear()? {
            Message::Go(of) if of == number => Ok(loaded.ok()),
            Message::Cancel(of) if of == number => Ok(None),
            other => Err(link.out_of_step(format_args!("{other:?}"))),
        }
    }

    /// Tells the others that one is lost, so that they say which.
    pub(super) fn mourn(&mut self, lost: u32, reason: &str) {
        let others = self.links.iter_mut().filter(|link| link.rank != lost);
        for link in others {
            let reason = reason.to_owned();
            // One that does not hear it finds out by itself.
            link.tell(&Message::Lost { rank: lost, reason }).ok();
        }
    }

    fn tell_all(&mut self, message: &Message) -> Result<()> {
        self.links
            .iter_mut()
            .try_for_each(|link| link.tell(message))
    }

    fn all_hear(&mut self, number: u64) -> Result<()> {
        let deadline = Instant::now() + self.limits.hear;
        for link in &mut self.links {
            // What was said of tasks that were called off comes first.
            loop {
                if !link.stirs(deadline.saturating_duration_since(Instant::now()))? {
                    return Err(Error::RankAbsent(link.rank));
                }
                match link.hear()? {
                    Message::Heard(of) if of == number => break,
                    Message::Heard(of) | Message::Ready(of) | Message::Refused(of, _)
                        if of < number => {}
                    other => return Err(link.out_of_step(format_args!("{other:?}"))),
                }
            }
        }
        Ok(())
    }

    /// Waits until all are ready; returns why the first cannot be.
    fn all_ready(&mut self, number: u64) -> Result<Option<Error>> {
        let mut refusal = None;
        for link in &mut self.links {
            match link.hear()? {
                Message::Ready(of) if of == number => {}
                Message::Refused(of, reason) if of == number => {
                    let rank = link.rank;
                    refusal.get_or_insert(Error::RankRefused { rank, reason });
                }
                other => return Err(link.out_of_step(format_args!("{other:?}"))),
            }
        }
        Ok(refusal)
    }

    fn leader(&mut self) -> &mut Link {
        &mut self.links[0]
    }
}

impl Ranks for Group {
    fn part(&self, batch: usize) -> Range<usize> {
        let until = |rank: u32| batch * rank as usize / self.world as usize;
        until(self.rank)..until(self.rank + 1)
    }

    fn add_up(&mut self, numbers: &mut [f64]) -> Result<()> {
        let count = numbers.len();
        if self.rank > 0 {
            let link = self.leader();
            link.send_numbers(numbers)?;
            return link.hear_numbers(count, |place, sum| numbers[place] = sum);
        }
        // In this order, whoever is the first to be done: how sums are rounded depends on it.
        for link in &mut self.links {
            link.hear_numbers(count, |place, part| numbers[place] += part)?;
        }
        self.links
            .iter_mut()
            .try_for_each(|link| link.send_numbers(numbers))
    }
}
