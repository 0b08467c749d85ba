use std::{
    ops::Range,
    time::{Duration, Instant},
};

use crate::distributed::{
    connection::{Call, Link, Message},
    rank_config::Limits,
};
use crate::{Error, Result, learner::ppo::process_group::ProcessGroup};

/// A rank connected with the other ranks of its learner group.
#[derive(Debug)]
pub struct Group {
    rank: u32,
    world: u32,
    /// On rank 0 the links to all others in rank order; on another rank the link to rank 0.
    links: Vec<Link>,
    limits: Limits,
    /// Number of tasks so far.
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

    /// The rank.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// On rank 0: sends a task to the other ranks and begins it when all have loaded it. `load`
    /// loads it here.
    pub(super) fn begin_task<T>(
        &mut self,
        call: &Call,
        load: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.tasks += 1;
        let number = self.tasks;
        let begin = Message::Begin(number, Box::new(call.clone()));
        self.broadcast(&begin)?;
        let loaded = self.wait_for_acks(number).and_then(|()| {
            let loaded = load();
            let ready = self.wait_for_ready(number);
            // A lost rank matters more than a task that cannot be loaded here.
            ready.and_then(|refusal| refusal.map_or(loaded, Err))
        });
        match &loaded {
            Ok(_) => self.broadcast(&Message::Go(number))?,
            Err(error) if error.is_fatal() => {}
            Err(_) => self.broadcast(&Message::Cancel(number))?,
        }
        loaded
    }

    /// On another rank: the next task, if one arrives in time.
    pub(super) fn poll_task(&mut self, within: Duration) -> Result<Option<(u64, Call)>> {
        let link = self.link_to_rank_0();
        if !link.is_readable(within)? {
            return Ok(None);
        }
        match link.recv_message()? {
            Message::Begin(number, call) => {
                link.send_message(&Message::Heard(number))?;
                Ok(Some((number, *call)))
            }
            other => Err(link.out_of_step(format_args!("{other:?}"))),
        }
    }

    /// On another rank: reports the result of loading and waits for the start. None if the task is
    /// cancelled.
    pub(super) fn join_task<T>(&mut self, number: u64, loaded: Result<T>) -> Result<Option<T>> {
        // Rank 0 waits that long for each rank.
        let within = self.limits.hear + 2 * self.limits.step;
        let link = self.link_to_rank_0();
        link.send_message(&match &loaded {
            Ok(_) => Message::Ready(number),
            Err(error) => Message::Refused(number, crate::chain(error)),
        })?;
        if !link.is_readable(within)? {
            return Err(link.out_of_step("no message in time"));
        }
        match link.recv_message()? {
            Message::Go(of) if of == number => Ok(loaded.ok()),
            Message::Cancel(of) if of == number => Ok(None),
            other => Err(link.out_of_step(format_args!("{other:?}"))),
        }
    }

    /// Notifies the other ranks which rank is lost.
    pub(super) fn mark_dead(&mut self, lost: u32, reason: &str) {
        let others = self.links.iter_mut().filter(|link| link.rank != lost);
        for link in others {
            let reason = reason.to_owned();
            // A rank that misses the message detects the loss itself.
            link.send_message(&Message::Lost { rank: lost, reason })
                .ok();
        }
    }

    fn broadcast(&mut self, message: &Message) -> Result<()> {
        self.links
            .iter_mut()
            .try_for_each(|link| link.send_message(message))
    }

    fn wait_for_acks(&mut self, number: u64) -> Result<()> {
        let deadline = Instant::now() + self.limits.hear;
        for link in &mut self.links {
            // Skip messages about cancelled tasks.
            loop {
                if !link.is_readable(deadline.saturating_duration_since(Instant::now()))? {
                    return Err(Error::RankAbsent(link.rank));
                }
                match link.recv_message()? {
                    Message::Heard(of) if of == number => break,
                    Message::Heard(of) | Message::Ready(of) | Message::Refused(of, _)
                        if of < number => {}
                    other => return Err(link.out_of_step(format_args!("{other:?}"))),
                }
            }
        }
        Ok(())
    }

    /// Waits until all are ready; returns the first refusal.
    fn wait_for_ready(&mut self, number: u64) -> Result<Option<Error>> {
        let mut refusal = None;
        for link in &mut self.links {
            match link.recv_message()? {
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

    fn link_to_rank_0(&mut self) -> &mut Link {
        &mut self.links[0]
    }
}

impl ProcessGroup for Group {
    fn shard(&self, batch: usize) -> Range<usize> {
        let until = |rank: u32| batch * rank as usize / self.world as usize;
        until(self.rank)..until(self.rank + 1)
    }

    fn all_reduce(&mut self, numbers: &mut [f64]) -> Result<()> {
        let count = numbers.len();
        if self.rank > 0 {
            let link = self.link_to_rank_0();
            link.send_numbers(numbers)?;
            return link.recv_numbers(count, |place, sum| numbers[place] = sum);
        }
        // Add in rank order: rounding depends on the order. See docs/decisions/0021.
        for link in &mut self.links {
            link.recv_numbers(count, |place, part| numbers[place] += part)?;
        }
        self.links
            .iter_mut()
            .try_for_each(|link| link.send_numbers(numbers))
    }
}
