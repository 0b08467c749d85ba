use std::thread;

use super::*;

/// Passes on each number, and one more.
struct Counter(Slot<u64>);

impl Component<u64> for Counter {
    fn take(&mut self, number: u64) {
        self.0.emit(number);
        self.0.emit(number + 1);
    }
}

/// Passes on what it takes.
struct Echo(Slot<u64>);

impl Component<u64> for Echo {
    fn take(&mut self, number: u64) {
        self.0.emit(number);
    }
}

#[test]
fn signals_of_one_emitter_arrive_in_their_order() {
    let (mut home, mut counting, mut echoing) = (
        EventLoop::default(),
        EventLoop::default(),
        EventLoop::default(),
    );
    let (told, counter, echo) = (home.slot(), counting.slot(), echoing.slot());
    counting.put(&counter, Counter(echo.clone()));
    echoing.put(&echo, Echo(told));
    let threads = [counting, echoing].map(|other| thread::spawn(|| other.run()));
    for number in 0..10_000 {
        counter.emit(number);
    }
    for number in 0..10_000 {
        assert_eq!([home.hear(), home.hear()], [Some(number), Some(number + 1)]);
    }
    counter.stop();
    echo.stop();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn components_of_one_loop_take_turns() {
    let mut home = EventLoop::default();
    let (told, first, second) = (home.slot(), home.slot(), home.slot());
    home.put(&first, Counter(second.clone()));
    home.put(&second, Echo(told.clone()));
    first.emit(1);
    first.emit(5);
    told.emit(0);
    let heard = [(); 5].map(|()| home.hear().unwrap());
    assert_eq!(heard, [0, 1, 2, 5, 6], "each waits for its turn");
}

#[test]
fn a_loop_ends_with_what_was_emitted_before() {
    let mut home = EventLoop::default();
    let mut other = EventLoop::default();
    let (told, counter) = (home.slot(), other.slot());
    other.put(&counter, Counter(told.clone()));
    counter.emit(3);
    counter.stop();
    counter.emit(7);
    other.run();
    counter.emit(9);
    told.stop();
    assert_eq!(
        [home.hear(), home.hear(), home.hear()],
        [Some(3), Some(4), None]
    );
}
