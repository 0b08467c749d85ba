use std::thread;

use super::*;

/// Emits each number and its successor.
struct Counter(Slot<u64>);

impl Component<u64> for Counter {
    fn handle_signal(&mut self, number: u64) {
        self.0.emit(number);
        self.0.emit(number + 1);
    }
}

/// Emits each number.
struct Echo(Slot<u64>);

impl Component<u64> for Echo {
    fn handle_signal(&mut self, number: u64) {
        self.0.emit(number);
    }
}

#[test]
fn signals_of_one_emitter_keep_order() {
    let (mut main_loop, mut counting, mut echoing) = (
        EventLoop::default(),
        EventLoop::default(),
        EventLoop::default(),
    );
    let (outbox, counter, echo) = (
        main_loop.new_slot(),
        counting.new_slot(),
        echoing.new_slot(),
    );
    counting.put_component(&counter, Counter(echo.clone()));
    echoing.put_component(&echo, Echo(outbox));
    let threads = [counting, echoing].map(|other| thread::spawn(|| other.run()));
    for number in 0..10_000 {
        counter.emit(number);
    }
    for number in 0..10_000 {
        assert_eq!(
            [main_loop.run_until_signal(), main_loop.run_until_signal()],
            [Some(number), Some(number + 1)]
        );
    }
    counter.stop();
    echo.stop();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn components_of_one_loop_alternate() {
    let mut main_loop = EventLoop::default();
    let (outbox, first, second) = (
        main_loop.new_slot(),
        main_loop.new_slot(),
        main_loop.new_slot(),
    );
    main_loop.put_component(&first, Counter(second.clone()));
    main_loop.put_component(&second, Echo(outbox.clone()));
    first.emit(1);
    first.emit(5);
    outbox.emit(0);
    let heard = [(); 5].map(|()| main_loop.run_until_signal().unwrap());
    assert_eq!(heard, [0, 1, 2, 5, 6], "each waits for its turn");
}

#[test]
fn stopped_loop_handles_earlier_signals() {
    let mut main_loop = EventLoop::default();
    let mut other = EventLoop::default();
    let (outbox, counter) = (main_loop.new_slot(), other.new_slot());
    other.put_component(&counter, Counter(outbox.clone()));
    counter.emit(3);
    counter.stop();
    counter.emit(7);
    other.run();
    counter.emit(9);
    outbox.stop();
    assert_eq!(
        [
            main_loop.run_until_signal(),
            main_loop.run_until_signal(),
            main_loop.run_until_signal()
        ],
        [Some(3), Some(4), None]
    );
}
