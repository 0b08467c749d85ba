use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use di_client::replicas_of;
use ratatui::{Terminal, backend::TestBackend};
use serde_json::json;

use super::*;
use crate::top::app::Next;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn job(name: &str, phase: &str, reason: Option<&str>) -> Job {
    Job::from(json!({
        "metadata": {"name": name, "namespace": "rl", "uid": name, "creationTimestamp": "2026-01-01T00:55:00Z"},
        "status": {
            "phase": phase, "reason": reason, "collectorsReady": "1/2", "learnersReady": "1/1",
            "plan": [
                {"name": format!("{name}-collector-aaaaa"), "type": "Collector", "origin": "Declared", "index": 0},
                {"name": format!("{name}-learner-aaaaa"), "type": "Learner", "origin": "Requested", "index": 0},
            ],
        },
    }))
}

fn jobs() -> Vec<Job> {
    vec![
        job("cartpole", "Running", Some("ImagePullBackOff")),
        job("pendulum", "Failed", Some("OOMKilled")),
        job("pong", "Succeeded", None),
    ]
}

/// A screen in front of some jobs, which keys are pressed at.
struct Desk {
    app: App,
    jobs: Vec<Job>,
    terminal: Terminal<TestBackend>,
}

impl Desk {
    fn new(width: u16, height: u16) -> Self {
        Self {
            app: App::new(Some("rl".to_owned())),
            jobs: jobs(),
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
        }
    }

    fn page(&mut self) -> Page {
        let name = self.app.opened.clone().map(|(_, name)| name);
        let job = self
            .jobs
            .iter()
            .find(|job| Some(job.name()) == name.as_deref());
        let mut page = match job {
            Some(job) => Page::replicas(job, &replicas_of(job, &[]), now()),
            None => Page::jobs(self.jobs.iter(), Some("rl"), now()),
        };
        page.narrow(&mut self.app);
        page
    }

    fn press(&mut self, keys: &[KeyCode]) -> Next {
        let mut next = Next::Go;
        for key in keys {
            let page = self.page();
            next = self
                .app
                .press(KeyEvent::new(*key, KeyModifiers::NONE), &page);
        }
        next
    }

    fn screen(&mut self) -> String {
        let page = self.page();
        self.terminal
            .draw(|frame| page.draw(frame, &mut self.app))
            .unwrap();
        let text = self.terminal.backend().to_string();
        let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
        lines.collect::<Vec<_>>().join("\n")
    }

    fn marked(&mut self) -> String {
        let page = self.page();
        let at = self.app.table.selected();
        at.map_or_else(String::new, |at| page.lines[at].key.clone())
    }
}

#[test]
fn jobs_stand_in_a_table() {
    insta::assert_snapshot!(Desk::new(90, 7).screen());
}

#[test]
fn a_small_screen_shows_what_fits() {
    let mut desk = Desk::new(30, 4);
    desk.press(&[KeyCode::End]);
    insta::assert_snapshot!(desk.screen());
}

#[test]
fn enter_opens_a_job_and_esc_leads_back_to_it() {
    let mut desk = Desk::new(100, 6);
    desk.press(&[KeyCode::Down, KeyCode::Enter]);
    insta::assert_snapshot!(desk.screen());
    desk.press(&[KeyCode::Esc]);
    assert_eq!(desk.marked(), "rl/pendulum");
}

#[test]
fn a_larger_screen_shows_what_was_above() {
    let mut desk = Desk::new(100, 4);
    desk.press(&[KeyCode::End]);
    assert!(!desk.screen().contains("cartpole"));
    desk.terminal.backend_mut().resize(100, 8);
    assert!(desk.screen().contains("cartpole"), "{}", desk.screen());
}

#[test]
fn a_filter_narrows_the_table_until_it_is_left() {
    let mut desk = Desk::new(90, 5);
    desk.press(&[
        KeyCode::Char('/'),
        KeyCode::Char('o'),
        KeyCode::Char('O'),
        KeyCode::Char('q'),
    ]);
    assert!(
        desk.screen().ends_with("/oOq_"),
        "q is typed: {}",
        desk.screen()
    );
    desk.press(&[KeyCode::Backspace, KeyCode::Enter]);
    insta::assert_snapshot!(desk.screen());
    desk.press(&[KeyCode::Esc]);
    assert_eq!(desk.page().lines.len(), 3);
}

#[test]
fn the_same_job_stays_marked_when_others_come_and_go() {
    let mut desk = Desk::new(90, 7);
    desk.press(&[KeyCode::Down]);
    desk.screen();
    desk.jobs.insert(0, job("acrobot", "Created", None));
    assert!(desk.screen().contains("acrobot"), "{}", desk.screen());
    assert_eq!(desk.marked(), "rl/pendulum");
    desk.jobs.retain(|job| job.name() != "pendulum");
    assert_eq!(desk.marked(), "rl/pong", "what stands in its place");
    desk.jobs.clear();
    assert_eq!(desk.marked(), "");
    assert!(desk.screen().contains("Jobs in rl  none"));
}

#[test]
fn help_is_shown_until_a_key_is_pressed() {
    let mut desk = Desk::new(60, 12);
    desk.press(&[KeyCode::Char('?')]);
    insta::assert_snapshot!(desk.screen());
    assert_eq!(
        desk.press(&[KeyCode::Char('q')]),
        Next::Go,
        "it closes the help"
    );
    assert_eq!(desk.press(&[KeyCode::Char('q')]), Next::Quit);
}

#[test]
fn an_interrupted_watch_is_told_of() {
    let mut desk = Desk::new(60, 4);
    let mut page = desk.page();
    page.trouble = Some("connection refused".to_owned());
    let foot = page.foot(&desk.app).to_string();
    assert_eq!(foot, "not up to date, trying again: connection refused");
}
