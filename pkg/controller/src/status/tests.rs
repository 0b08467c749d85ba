use di_api::Origin;

use super::*;

fn entry(name: &str, role: Role) -> PlanEntry {
    PlanEntry::new(name.to_owned(), role, Origin::Declared, 0)
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
