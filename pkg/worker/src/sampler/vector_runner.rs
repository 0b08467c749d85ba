use std::{
    mem::take,
    sync::{Arc, MutexGuard},
};

use crate::{
    environment::{EnvFactory, OBSERVATION_SIZE},
    sampler::{
        env_runner::EnvRunner,
        event_loop::Slot,
        shared_buffers::{ActionExchange, Order, SampleCounts, SharedBuffers},
        signal::Signal,
        trajectory_buffer::Step,
    },
};

/// Receivers of a rollout worker's signals.
#[derive(Clone, Debug)]
pub(super) struct Outputs {
    /// The inference workers; each serves some of the splits.
    pub(super) inference: Arc<[Slot<Signal>]>,
    pub(super) batcher: Slot<Signal>,
    pub(super) sampler: Slot<Signal>,
}

/// The environments of a split. While they wait for actions, another split is stepped.
pub(super) struct VectorRunner {
    split: usize,
    shared: Arc<SharedBuffers>,
    outputs: Outputs,
    order: Option<Arc<Order>>,
    /// The environments with work left.
    players: Vec<EnvRunner>,
    lanes: Vec<Lane>,
    /// Steps of each environment so far.
    steps: usize,
    /// Whether actions are present but no trajectory buffer is free.
    stalled: bool,
    after: Vec<f32>,
    tally: SampleCounts,
}

/// The trajectory buffers that are filled alternately.
struct Lane {
    free: Vec<usize>,
    open: Option<usize>,
}

impl VectorRunner {
    pub(super) fn new(split: usize, shared: Arc<SharedBuffers>, outputs: Outputs) -> Self {
        let lanes = (0..shared.lane_count()).map(|lane| Lane {
            free: shared.lane_buffers(split, lane),
            open: None,
        });
        Self {
            split,
            lanes: lanes.collect(),
            shared,
            outputs,
            order: None,
            players: Vec::new(),
            steps: 0,
            stalled: false,
            after: Vec::new(),
            tally: SampleCounts::default(),
        }
    }

    /// Begins an order.
    pub(super) fn begin_order(&mut self, order: &Arc<Order>, maker: &EnvFactory) {
        let shared = self.shared.clone();
        let environments = shared.split_environments(self.split);
        let width = OBSERVATION_SIZE;
        // The first environments have the largest share, so empty shares are last.
        let players = environments
            .clone()
            .map_while(|environment| EnvRunner::new(environment, order, &shared.sampling, maker));
        self.players = players.collect();
        self.order = Some(order.clone());
        self.steps = 0;
        self.after.resize(width, 0.0);
        if order.records_steps() {
            let (rows, columns) = (
                shared.rows_per_buffer(),
                order.buffer_columns(&shared.sampling),
            );
            // Resize all free buffers now, so that none grows later.
            for block in self.lanes.iter().flat_map(|lane| &lane.free) {
                shared
                    .lock_buffer(*block)
                    .reset_shape(environments.start, 0, rows, columns, width);
            }
        }

        let mut exchange = shared.lock_exchange(self.split);
        exchange.reset_shape(environments.len(), width);
        exchange.live.extend(0..self.players.len());
        for (player, seen) in self
            .players
            .iter()
            .zip(exchange.observations.chunks_exact_mut(width))
        {
            player.observe(seen);
        }
        self.request_actions(exchange, order);
    }

    /// Returns a trajectory buffer.
    pub(super) fn return_buffer(&mut self, block: usize, lane: usize) {
        self.lanes[lane].free.push(block);
        if self.stalled {
            self.step_all();
        }
    }

    /// Steps all environments whose actions are present.
    pub(super) fn step_all(&mut self) {
        let Some(order) = self.order.clone() else {
            return;
        };
        let shared = self.shared.clone();
        let mut exchange = shared.lock_exchange(self.split);
        self.stalled = order.records_steps() && !self.open_buffers(&exchange, &order);
        if self.stalled {
            return;
        }
        let mut live = take(&mut exchange.live);
        live.retain(|place| self.step_environment(*place, &mut exchange, &order));
        exchange.live = live;
        self.steps += 1;
        if order.records_steps() {
            self.send_full_buffers(&order);
        }
        self.request_actions(exchange, &order);
    }

    /// Steps an environment; returns whether work is left.
    fn step_environment(
        &mut self,
        place: usize,
        exchange: &mut ActionExchange,
        order: &Order,
    ) -> bool {
        let player = &mut self.players[place];
        let width = self.after.len();
        let seen = &mut exchange.observations[place * width..(place + 1) * width];
        let action = exchange.actions[place];
        let (reward, ending) = player.step(action);
        player.observe(&mut self.after);
        let (lane, row) = self.shared.lane_and_row(place);
        if let Some(block) = self.lanes[lane].open {
            self.shared.lock_buffer(block).push_step(
                row,
                &Step {
                    before: seen,
                    after: &self.after,
                    action,
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "frames are stored in single precision"
                    )]
                    reward: reward as f32,
                    log_probability: exchange.log_probabilities[place],
                    ending,
                },
            );
        }
        self.tally.frames += 1;
        match player.finish_step(ending.is_some(), order, &self.shared.sampling) {
            Some(ended) => {
                self.tally.returns.push(ended);
                player.observe(seen);
            }
            None => seen.copy_from_slice(&self.after),
        }
        player.has_more()
    }

    /// Opens a trajectory buffer for each waiting environment; false if none is free.
    fn open_buffers(&mut self, exchange: &ActionExchange, order: &Order) -> bool {
        let shared = self.shared.clone();
        let first = shared.split_environments(self.split).start;
        let (rows, columns) = (
            shared.rows_per_buffer(),
            order.buffer_columns(&shared.sampling),
        );
        exchange.live.iter().all(|place| {
            let (number, _) = shared.lane_and_row(*place);
            let lane = &mut self.lanes[number];
            if lane.open.is_none() {
                lane.open = lane.free.pop();
                if let Some(block) = lane.open {
                    let mut block = shared.lock_buffer(block);
                    block.reset_shape(first + number, self.steps, rows, columns, OBSERVATION_SIZE);
                }
            }
            lane.open.is_some()
        })
    }

    /// Sends full and final trajectory buffers to the batcher.
    fn send_full_buffers(&mut self, order: &Order) {
        let is_full = self
            .steps
            .is_multiple_of(order.buffer_columns(&self.shared.sampling));
        let players = self.players.chunks(self.shared.rows_per_buffer());
        for (lane, players) in self.lanes.iter_mut().zip(players) {
            let is_over = is_full || !players.iter().any(EnvRunner::has_more);
            if let Some(block) = lane.open.take_if(|_| is_over) {
                self.outputs.batcher.emit(Signal::Filled(block));
            }
        }
    }

    /// Requests the next actions, or reports that the share is done.
    fn request_actions(&mut self, mut exchange: MutexGuard<'_, ActionExchange>, order: &Order) {
        if exchange.live.is_empty() {
            *self.shared.lock_counts(self.split) = take(&mut self.tally);
            self.outputs.sampler.emit(Signal::Finished(self.split));
            return;
        }
        if order.records_steps() {
            let ActionExchange { live, draws, .. } = &mut *exchange;
            for &place in &*live {
                draws[place] = self.players[place].draw_number();
            }
        }
        // Unlock before the signal: its receiver locks the exchange.
        drop(exchange);
        let inference = &self.outputs.inference;
        inference[self.split % inference.len()].emit(Signal::Observed(self.split));
    }
}
