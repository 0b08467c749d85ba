//! The plugin in a real terminal: tmux has one that can be looked at.

use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use di_apiserver_tests::eventually;

use crate::plugin::Plugin;

/// A terminal in which the plugin is called.
pub struct Terminal {
    socket: PathBuf,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

impl Terminal {
    /// Calls the plugin in a terminal of this size. Its exit code and the terminal's settings are printed when it has ended.
    pub fn open(plugin: &Plugin, width: u16, height: u16, args: &[&str]) -> Self {
        // Each has a server of its own: one that is ending would be found by the next.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let terminal = Self {
            socket: plugin.dir().join(format!("tmux-{number}")),
        };
        let dir = plugin.dir().display();
        let program = env!("CARGO_BIN_EXE_kubectl-di");
        let args = args.join(" ");
        let script = format!(
            "cd {dir}; export HOME={dir} KUBECONFIG={dir}/config; {program} {args}; echo ended with $?; stty -a | grep -woE -e '-?(isig|icanon|echo)' | xargs echo settings; exec cat"
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

    /// Changes the size.
    pub fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(&["resize-window", "-x", &width, "-y", &height]);
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        let text = self.tmux(&["capture-pane", "-p"]);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// Waits until the screen shows what is wanted, and returns it.
    pub async fn until(&self, what: &str, done: impl Fn(&str) -> bool) -> String {
        eventually(what, async || {
            let screen = self.screen();
            if done(&screen) {
                Ok(screen)
            } else {
                Err(screen)
            }
        })
        .await
    }

    /// Waits until the plugin has ended with this code, and left the terminal as it was.
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

    /// Sends a signal to the plugin.
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
