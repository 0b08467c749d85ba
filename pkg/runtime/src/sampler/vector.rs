use std::{
    mem::take,
    sync::{Arc, MutexGuard},
};

use super::{
    Maker, Signal,
    block::Step,
    player::Player,
    shared::{Exchange, Order, Shared, Tally},
};
use crate::signal::Slot;

/// Where the signals of a rollout worker go.
#[derive(Clone, Debug)]
pub(super) struct Outputs {
    /// Each chooses the actions of some of the splits.
    pub(super) inference: Arc<[Slot<Signal>]>,
    pub(super) batcher: Slot<Signal>,
    pub(super) sampler: Slot<Signal>,
}

/// The environments of a split: while they wait for their actions, those of another are stepped.
pub(super) struct VectorRunner {
    split: usize,
    shared: Arc<Shared>,
    outputs: Outputs,
    order: Option<Arc<Order>>,
    /// All that have something to do.
    players: Vec<Player>,
    lanes: Vec<Lane>,
    /// Steps made so far in each environment that has more to do.
    steps: usize,
    /// Whether the actions are there, but a trajectory buffer is missing.
    stalled: bool,
    after: Vec<f32>,
    tally: Tally,
}

/// Trajectory buffers that are filled in turn.
struct Lane {
    free: Vec<usize>,
    open: Option<usize>,
}

impl VectorRunner {
    pub(super) fn new(split: usize, shared: Arc<Shared>, outputs: Outputs) -> Self {
        let lanes = (0..shared.lanes()).map(|lane| Lane {
            free: shared.buffers(split, lane),
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
            tally: Tally::default(),
        }
    }

    /// Begins with an order.
    pub(super) fn begin(&mut self, order: &Arc<Order>, maker: &Maker) {
        let shared = self.shared.clone();
        let environments = shared.environments(self.split);
        let width = order.width();
        // The first ones have the most to do, so those without anything are the last ones.
        let players = environments
            .clone()
            .map_while(|environment| Player::new(environment, order, &shared.sampling, maker));
        self.players = players.collect();
        self.order = Some(order.clone());
        self.steps = 0;
        self.after.resize(width, 0.0);
        if order.collects() {
            let (rows, columns) = (shared.rows(), order.columns(&shared.sampling));
            // Whichever of them is filled when: none grows meanwhile.
            for block in self.lanes.iter().flat_map(|lane| &lane.free) {
                shared
                    .block(*block)
                    .shape(environments.start, 0, rows, columns, width);
            }
        }

        let mut exchange = shared.exchange(self.split);
        exchange.shape(environments.len(), width);
        exchange.live.extend(0..self.players.len());
        for (player, seen) in self
            .players
            .iter()
            .zip(exchange.observations.chunks_exact_mut(width))
        {
            player.observe(seen);
        }
        self.hand_over(exchange, order);
    }

    /// Takes a trajectory buffer back.
    pub(super) fn take_back(&mut self, block: usize, lane: usize) {
        self.shared.block(block).lent = false;
        self.lanes[lane].free.push(block);
        if self.stalled {
            self.advance();
        }
    }

    /// Steps the environments, whose actions are there.
    pub(super) fn advance(&mut self) {
        let Some(order) = self.order.clone() else {
            return;
        };
        let shared = self.shared.clone();
        let mut exchange = shared.exchange(self.split);
        self.stalled = order.collects() && !self.open(&exchange, &order);
        if self.stalled {
            return;
        }
        let mut live = take(&mut exchange.live);
        live.retain(|place| self.step(*place, &mut exchange, &order));
        exchange.live = live;
        self.steps += 1;
        if order.collects() {
            self.close(&order);
        }
        self.hand_over(exchange, &order);
    }

    /// Steps an environment; whether it has more to do.
    fn step(&mut self, place: usize, exchange: &mut Exchange, order: &Order) -> bool {
        let player = &mut self.players[place];
        let width = self.after.len();
        let seen = &mut exchange.observations[place * width..(place + 1) * width];
        let action = exchange.actions[place];
        let (reward, ending) = player.step(action);
        player.observe(&mut self.after);
        let (lane, row) = self.shared.place(place);
        if let Some(block) = self.lanes[lane].open {
            self.shared.block(block).push(
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
        match player.next(ending.is_some(), order, &self.shared.sampling) {
            Some(ended) => {
                self.tally.returns.push(ended);
                player.observe(seen);
            }
            None => seen.copy_from_slice(&self.after),
        }
        player.goes_on()
    }

    /// Has each environment that waits record its steps; whether there are enough trajectory buffers.
    fn open(&mut self, exchange: &Exchange, order: &Order) -> bool {
        let shared = self.shared.clone();
        let first = shared.environments(self.split).start;
        let (rows, columns) = (shared.rows(), order.columns(&shared.sampling));
        exchange.live.iter().all(|place| {
            let (number, _) = shared.place(*place);
            let lane = &mut self.lanes[number];
            if lane.open.is_none() {
                lane.open = lane.free.pop();
                if let Some(block) = lane.open {
                    let mut block = shared.block(block);
                    block.shape(first + number, self.steps, rows, columns, order.width());
                    block.lent = true;
                }
            }
            lane.open.is_some()
        })
    }

    /// Hands on the trajectory buffers that are full, or get nothing more.
    fn close(&mut self, order: &Order) {
        let is_full = self
            .steps
            .is_multiple_of(order.columns(&self.shared.sampling));
        let players = self.players.chunks(self.shared.rows());
        for (lane, players) in self.lanes.iter_mut().zip(players) {
            let is_over = is_full || !players.iter().any(Player::goes_on);
            if let Some(block) = lane.open.take_if(|_| is_over) {
                self.outputs.batcher.emit(Signal::Filled(block));
            }
        }
    }

    /// Asks for the next actions, or tells that all is done.
    fn hand_over(&mut self, mut exchange: MutexGuard<'_, Exchange>, order: &Order) {
        if exchange.live.is_empty() {
            *self.shared.tally(self.split) = take(&mut self.tally);
            self.outputs.sampler.emit(Signal::Finished(self.split));
            return;
        }
        if order.collects() {
            let Exchange { live, draws, .. } = &mut *exchange;
            for &place in &*live {
                draws[place] = self.players[place].draw();
            }
        }
        // Who is told finds it free.
        drop(exchange);
        let inference = &self.outputs.inference;
        inference[self.split % inference.len()].emit(Signal::Observed(self.split));
    }
}
