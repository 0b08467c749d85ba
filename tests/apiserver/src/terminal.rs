use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use crate::eventually;

/// A real terminal in which a program runs: tmux has one that can be looked at.
pub struct Terminal {
    socket: PathBuf,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

impl Terminal {
    /// Runs a command in a terminal of this size, in a folder that also takes the terminal's socket. Its exit code and the terminal's settings
    /// are printed when it has ended.
    pub fn open(dir: &Path, width: u16, height: u16, command: &str) -> Self {
        // Each has a server of its own: one that is ending would be found by the next.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let terminal = Self {
            socket: dir.join(format!("tmux-{number}")),
        };
        let dir = dir.display();
        // Ctrl-C is for the command alone.
        let script = format!(
            "trap : INT; cd {dir}; {command}; echo ended with $?; stty -a | grep -woE -e '-?(isig|icanon|echo)' | xargs echo settings; exec cat"
        );
        let (width, height) = (width.to_string(), height.to_string());
        let size = ["-x", width.as_str(), "-y", height.as_str()];
        let session = [
            &["new-session", "-d"],
            size.as_slice(),
            &["sh", "-c", &script],
        ]
        .concat();
        let options = ["set", "-g", "status", "off", ";"];
        terminal.tmux(&[options.as_slice(), &session].concat());
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(&self.socket)
            .args(args)
            .output()
            .expect("tmux: apt-get install tmux");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Presses keys, by tmux' names for them.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Changes the size, and waits until programs are told: tmux takes its time for that.
    pub async fn resize(&self, width: u16, height: u16) {
        let size = format!("{height} {width}\n");
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(&["resize-window", "-x", &width, "-y", &height]);
        let tty = self.tmux(&["display", "-p", "#{pane_tty}"]);
        eventually("the terminal's size", async || {
            let reported = Command::new("stty")
                .args(["-F", tty.trim(), "size"])
                .output();
            let reported = reported.unwrap().stdout;
            let is_resized = reported == size.as_bytes();
            is_resized
                .then_some(())
                .ok_or_else(|| String::from_utf8_lossy(&reported).into_owned())
        })
        .await;
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        let text = self.tmux(&["capture-pane", "-p"]);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// The same, with the sequences that colour it.
    pub fn colours(&self) -> String {
        self.tmux(&["capture-pane", "-e", "-p"])
    }

    /// Waits until the screen shows what is wanted, and returns it.
    pub async fn until(&self, description: &str, done: impl Fn(&str) -> bool) -> String {
        eventually(description, async || {
            let screen = self.screen();
            if done(&screen) {
                Ok(screen)
            } else {
                Err(screen)
            }
        })
        .await
    }

    /// Waits until the command has ended with this code, and left the terminal as it was.
    pub async fn until_ended(&self, code: u8) {
        let ended = format!("ended with {code}\n");
        let screen = self
            .until(&ended, |screen| screen.contains("\nsettings"))
            .await;
        assert!(screen.contains(&ended), "{screen}");
        assert!(screen.contains("settings isig icanon echo"), "{screen}");
        assert_eq!(self.tmux(&["display", "-p", "#{alternate_on}"]).trim(), "0");
        assert_eq!(self.tmux(&["display", "-p", "#{cursor_flag}"]).trim(), "1");
    }

    /// Sends a signal to the command.
    pub fn signal(&self, signal: &str) {
        let shell = self.tmux(&["display", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let child = children.unwrap();
        let killed = Command::new("kill")
            .args(["-s", signal, child.trim()])
            .status();
        assert!(killed.unwrap().success());
    }
}
