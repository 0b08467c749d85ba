//! A training whose coordinator ends, and is started anew.

use std::{path::PathBuf, time::Duration};

use di_runtime::{
    checkpoint::Keep,
    coordinator::{Options, Outcome},
    model::Model,
    training::Goal,
};

use crate::{
    coordinator, files, options, run,
    stand_in::{StandIn, loopback_listener},
};

const ITERATIONS: u64 = 6;

/// A short training with a checkpoint of every model.
fn short() -> Options {
    Options {
        goal: Goal {
            max_iterations: ITERATIONS,
            target_return: 501.0,
            ..options().goal
        },
        keep: Keep {
            every: Duration::ZERO,
            ..Keep::default()
        },
        ..options()
    }
}

fn checkpoints(stand_in: &StandIn) -> Vec<PathBuf> {
    let folder = stand_in.storage().join("rl/pole/checkpoints");
    let mut found = files(&folder);
    found.sort();
    found
}

/// The newest of the models that starts have left.
fn trained(stand_in: &StandIn) -> Model {
    let left = files(stand_in.storage()).into_iter();
    let models = left.filter(|path| path.ends_with("model-final.bin"));
    let models = models.map(|path| Model::decode(&std::fs::read(path).unwrap()).unwrap());
    models.max_by_key(|model| model.version).unwrap()
}

/// Trains to the end; the model, and the frames of it.
async fn finish(stand_in: &StandIn) -> (Model, u64) {
    let coordinator = coordinator(stand_in, short());
    let progress = coordinator.progress();
    assert_eq!(run(coordinator).await.unwrap(), Outcome::Unsolved);
    let frames = progress.borrow().frames;
    (trained(stand_in), frames)
}

#[tokio::test]
async fn a_training_that_was_interrupted_ends_as_if_it_had_not_been() {
    let undisturbed = finish(&StandIn::start().await).await;
    assert_eq!(undisturbed.0.version, ITERATIONS);

    let stand_in = StandIn::start().await;
    let first = coordinator(&stand_in, short());
    let mut progress = first.progress();
    let interrupted = async move {
        let far = progress.wait_for(|progress| progress.iteration >= 2);
        far.await.unwrap();
    };
    let ended = first.run(loopback_listener().await, interrupted).await;
    assert_eq!(ended.unwrap(), Outcome::Interrupted);
    let kept = checkpoints(&stand_in);
    assert!(!kept.is_empty() && kept.len() <= 3, "{kept:?}");
    let second = coordinator(&stand_in, short());
    let mut progress = second.progress();
    let running = tokio::spawn(run(second));
    let begun = progress.wait_for(|progress| !progress.run.is_empty()).await;
    assert!(
        begun.unwrap().iteration >= 2,
        "it begins where the first ended"
    );
    assert_eq!(running.await.unwrap().unwrap(), Outcome::Unsolved);
    let frames = progress.borrow().frames;
    assert_eq!((trained(&stand_in), frames), undisturbed);
    assert!(
        !stand_in.storage().join("rl/pole/checkpoints").exists(),
        "one that has ended is not gone on with"
    );
}

#[tokio::test]
async fn a_killed_coordinator_goes_on_from_the_checkpoint_before_a_damaged_one() {
    let undisturbed = finish(&StandIn::start().await).await;

    let stand_in = StandIn::start().await;
    let first = coordinator(&stand_in, short());
    let mut progress = first.progress();
    let running = tokio::spawn(run(first));
    let far = progress.wait_for(|progress| progress.iteration >= 3).await;
    far.unwrap();
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let kept = checkpoints(&stand_in);
    let newest = kept.last().unwrap();
    let bytes = std::fs::read(newest).unwrap();
    std::fs::write(newest, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(finish(&stand_in).await, undisturbed);
}
