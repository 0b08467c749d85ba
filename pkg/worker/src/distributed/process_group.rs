use std::{
    ops::Range,
    time::{Duration, Instant},
};

use crate::{
    Error, Result,
    distributed::{
        connection::{Connection, GroupTask, Message},
        rank_config::Timeouts,
    },
    learner::ppo::process_group::ProcessGroup,
};

/// A rank connected with the other ranks of its learner group.
#[derive(Debug)]
pub struct TcpProcessGroup {
    rank: u32,
    world_size: u32,
    /// On rank 0 the connections to all others in rank order; on another rank the connection to rank 0.
    connections: Vec<Connection>,
    timeouts: Timeouts,
    /// Number of tasks so far.
    tasks: u64,
}

impl TcpProcessGroup {
    pub(super) const fn new(
        rank: u32,
        world_size: u32,
        connections: Vec<Connection>,
        timeouts: Timeouts,
    ) -> Self {
        Self {
            rank,
            world_size,
            connections,
            timeouts,
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
        call: &GroupTask,
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
    pub(super) fn poll_task(&mut self, within: Duration) -> Result<Option<(u64, GroupTask)>> {
        let connection = self.connection_to_rank_0();
        if !connection.is_readable(within)? {
            return Ok(None);
        }
        match connection.recv_message()? {
            Message::Begin(number, call) => {
                connection.send_message(&Message::Ack(number))?;
                Ok(Some((number, *call)))
            }
            other => Err(connection.protocol_error(format_args!("{other:?}"))),
        }
    }

    /// On another rank: reports the result of loading and waits for the start. None if the task is
    /// cancelled.
    pub(super) fn join_task<T>(&mut self, number: u64, loaded: Result<T>) -> Result<Option<T>> {
        // Rank 0 waits that long for each rank.
        let within = self.timeouts.ack + 2 * self.timeouts.message;
        let connection = self.connection_to_rank_0();
        connection.send_message(&match &loaded {
            Ok(_) => Message::Ready(number),
            Err(error) => Message::Refused(number, crate::chain(error)),
        })?;
        if !connection.is_readable(within)? {
            return Err(connection.protocol_error("no message in time"));
        }
        match connection.recv_message()? {
            Message::Go(of) if of == number => Ok(loaded.ok()),
            Message::Cancel(of) if of == number => Ok(None),
            other => Err(connection.protocol_error(format_args!("{other:?}"))),
        }
    }

    /// Notifies the other ranks which rank is lost.
    pub(super) fn abort(&mut self, lost: u32, reason: &str) {
        let others = self
            .connections
            .iter_mut()
            .filter(|connection| connection.rank != lost);
        for connection in others {
            let reason = reason.to_owned();
            // A rank that misses the message detects the loss itself.
            connection
                .send_message(&Message::Lost { rank: lost, reason })
                .ok();
        }
    }

    fn broadcast(&mut self, message: &Message) -> Result<()> {
        self.connections
            .iter_mut()
            .try_for_each(|connection| connection.send_message(message))
    }

    fn wait_for_acks(&mut self, number: u64) -> Result<()> {
        let deadline = Instant::now() + self.timeouts.ack;
        for connection in &mut self.connections {
            // Skip messages about cancelled tasks.
            loop {
                if !connection.is_readable(deadline.saturating_duration_since(Instant::now()))? {
                    return Err(Error::RankAbsent(connection.rank));
                }
                match connection.recv_message()? {
                    Message::Ack(of) if of == number => break,
                    Message::Ack(of) | Message::Ready(of) | Message::Refused(of, _)
                        if of < number => {}
                    other => return Err(connection.protocol_error(format_args!("{other:?}"))),
                }
            }
        }
        Ok(())
    }

    /// Waits until all are ready; returns the first refusal.
    fn wait_for_ready(&mut self, number: u64) -> Result<Option<Error>> {
        let mut refusal = None;
        for connection in &mut self.connections {
            match connection.recv_message()? {
                Message::Ready(of) if of == number => {}
                Message::Refused(of, reason) if of == number => {
                    let rank = connection.rank;
                    refusal.get_or_insert(Error::RankRefused { rank, reason });
                }
                other => return Err(connection.protocol_error(format_args!("{other:?}"))),
            }
        }
        Ok(refusal)
    }

    fn connection_to_rank_0(&mut self) -> &mut Connection {
        &mut self.connections[0]
    }
}

impl ProcessGroup for TcpProcessGroup {
    fn shard(&self, batch: usize) -> Range<usize> {
        let until = |rank: u32| batch * rank as usize / self.world_size as usize;
        until(self.rank)..until(self.rank + 1)
    }

    fn all_reduce(&mut self, numbers: &mut [f64]) -> Result<()> {
        let count = numbers.len();
        if self.rank > 0 {
            let connection = self.connection_to_rank_0();
            connection.send_tensor(numbers)?;
            return connection.recv_tensor(count, |index, sum| numbers[index] = sum);
        }
        // Add in rank order: rounding depends on the order. See docs/decisions/0021.
        for connection in &mut self.connections {
            connection.recv_tensor(count, |index, part| numbers[index] += part)?;
        }
        self.connections
            .iter_mut()
            .try_for_each(|connection| connection.send_tensor(numbers))
    }
}
