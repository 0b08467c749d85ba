use di_api::Origin;

use super::*;

fn entry(name: &str, role: Role) -> PlanEntry {
    PlanEntry::new(name.to_owned(), role, Origin::Declared, 0)
}

#[test]
fn a_burst_is_written_when_it_is_over_or_has_lasted() {
    let began = Instant::now();
    // Looks, in milliseconds: each waits until it is quiet, the one at that time or later finds it due.
    for (looks, pace, due) in [
        (&[0][..], 0, 400),
        (&[0, 400], 0, 400),
        (&[0, 410, 420], 0, 400),
        (&[0, 399], 0, 799),
        (&[0, 300, 600, 790], 0, 800),
        (&[0, 300, 600, 800, 801], 0, 800),
        (&[0], 1000, 1000),
        (&[0, 300, 900], 1000, 1000),
    ] {
        let after = |ms| began + Duration::from_millis(ms);
        let look = |held, at: &u64| Some(Held::on(held, after(*at), Duration::from_millis(pace)));
        let held = looks.iter().fold(None, look);
        let expected = Held {
            since: began,
            until: after(due),
        };
        assert_eq!(held, Some(expected), "{looks:?}, {pace}");
    }
}

#[test]
fn while_the_plan_is_held_back_goes_on_what_was_written() {
    let goes = |name: &str| Action::DeletePod {
        name: name.to_owned(),
        uid: "u".to_owned(),
    };
    let (planned, fresh) = (
        entry("planned", Role::Collector),
        entry("fresh", Role::Collector),
    );
    let (mut let_go, mut replaced) = (
        entry("let-go", Role::Collector),
        entry("replaced", Role::Collector),
    );
    let_go.state = EntryState::Removing;
    let old = DIJobStatus {
        plan: vec![planned.clone(), let_go.clone(), replaced.clone()],
        ..DIJobStatus::default()
    };
    replaced.state = EntryState::Replaced;
    let mut new = DIJobStatus {
        plan: vec![planned.clone(), let_go, replaced, fresh.clone()],
        ..DIJobStatus::default()
    };
    let coordinator = Action::CreatePod(entry("coordinator", Role::Coordinator));
    let rest = vec![
        coordinator.clone(),
        Action::CreatePod(planned),
        goes("let-go"),
    ];
    let others = [
        Action::CreatePod(fresh),
        goes("replaced"),
        goes("unknown"),
        Action::DeleteJob,
    ];
    let all = [rest.clone(), others.to_vec()].concat();
    assert_eq!(on_what_stands(Some(&old), &new, all.clone()), rest);
    new.coordinator.attempt = 1;
    assert_eq!(on_what_stands(Some(&old), &new, all.clone()), rest[1..]);
    assert_eq!(on_what_stands(None, &new, all), []);
}
