"""Escape attempts, each run for real against both back ends, with the outcome read from the machine.

A script does what a hostile model would. Nobody believes its words: after it, the playground looks at what must not have
changed (a world outside, a home, everything protected), at listeners, at processes, and for secrets in the output.
`$OUT` is the world outside, `$ROOT` the folder that may be written, `$PY` an interpreter, `$AGENT` and `$VICTIM` processes
outside, `$TOKEN` a number that marks processes; `yes` claims a success that leaves no other trace.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import Sandbox, SandboxProfile, open_unconfined

OpenFn = Callable[[SandboxProfile], Sandbox]

PRELUDE = """
yes() { echo "$GOT$OUT_"; }
call() { $PY -c "
import ctypes, errno, os, platform, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == 'aarch64'
def syscall(x86, aarch64, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(aarch64 if arm else x86), *arguments)
    return result, ctypes.get_errno()
def long(value): return ctypes.c_long(value)
def yes(): print(os.environ['GOT'] + os.environ['OUT_'], flush=True)
out, agent, victim = os.environ['OUT'], int(os.environ['AGENT']), int(os.environ['VICTIM'])
$1"; }
"""

WRITING_OUTSIDE = {
    "overwrite by path": "echo x > $OUT/canary",
    "append": "echo x >> $OUT/canary",
    "create a file": "touch $OUT/new",
    "create a folder": "mkdir $OUT/new",
    "through dot dot": "echo x > ../outside/canary",
    "through a link to a file": "ln -s $OUT/canary link; echo x > link",
    "through a link to a folder": "ln -s $OUT link; echo x > link/new",
    "through a chain of links": "ln -s ../outside a; ln -s a/folder b; touch b/new",
    "through a hard link": "ln $OUT/canary hard && echo x > hard",
    "move a file out": "echo x > f; mv f $OUT/new; cp f $OUT/new2",
    "move a file over another": "echo x > f; mv -f f $OUT/canary",
    "move a file in": "mv $OUT/canary mine",
    "move a folder in": "mv $OUT/folder mine",
    "exchange two files": "echo x > f; call \"syscall(316, 276, -100, b'f', -100, (out + '/canary').encode(), 2)\"",
    "edit in place": "sed -i s/was/is/ $OUT/canary",
    "dd without truncation": "echo x | dd of=$OUT/canary conv=notrunc",
    "tee": "echo x | tee $OUT/canary $OUT/new",
    "remove a file": "rm -f $OUT/canary",
    "remove a folder": "rmdir $OUT/folder; rm -rf $OUT",
    "chmod": "chmod 777 $OUT/canary; chmod u+s $OUT/program",
    "chown": "chown 12345 $OUT/canary",
    "truncate": "truncate -s 0 $OUT/canary; call \"os.truncate(out + '/canary', 1)\"",
    "fallocate": "fallocate -l 100 $OUT/canary; fallocate -l 100 $OUT/new",
    "time stamps and attributes": "touch -d 2001-01-01 $OUT/canary && yes; "
    "call \"os.setxattr(out + '/canary', 'user.x', b'x'); yes()\"",
    "the root of a process": "echo x > /proc/self/root$OUT/canary; echo x > /proc/1/root$OUT/canary",
    "the folder of a process outside": "echo x > /proc/$AGENT/root$OUT/canary; echo x > /proc/$VICTIM/root$OUT/new; "
    "touch /proc/$AGENT/cwd/from-a-sandbox && yes",
    "descriptors of processes outside": "for f in /proc/$AGENT/fd/* /proc/$VICTIM/fd/*; do echo x > $f && yes; done",
    "a descriptor of the root folder": "call \"d = os.open('/', os.O_RDONLY); "
    "os.open(out[1:] + '/new', os.O_WRONLY | os.O_CREAT, dir_fd=d)\"",
    "leaving by fchdir": "call \"d = os.open(out, os.O_RDONLY); os.fchdir(d); open('new', 'w')\"",
    "an open without O_CREAT, then mmap": "call \"import mmap; f = open(out + '/canary', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0] = 120\"",
    "a shell from memory": "call \"f = os.memfd_create('x'); os.write(f, open('/bin/sh', 'rb').read()); "
    "os.execve(f, ['sh', '-c', 'echo x > ' + out + '/canary'], os.environ)\"",
    "openat2": "call \"how = struct.pack('QQQ', 0o101, 0o644, 0); syscall(437, 437, -100, (out + '/new').encode(), how, 24)\"",
    "an archive with absolute names": "tar cPf a.tar hello.txt --transform=s,hello.txt,$OUT/new,; tar xPf a.tar",
    "a program that would run later": "echo 'echo hijacked' > $OUT/program; cp /bin/true $OUT/program",
    "start files of the shell": "for f in .bashrc .profile .bash_profile .zshrc .zshenv; do echo evil >> ~/$f; done",
    "configuration of git at home": "git config --global core.pager evil; echo '[core]' >> ~/.gitconfig",
    "keys that let somebody in": "mkdir -p ~/.ssh; echo ssh-rsa > ~/.ssh/authorized_keys",
    "programs that start by themselves": "mkdir -p ~/.config/autostart ~/.config/systemd/user; "
    "echo x > ~/.config/autostart/x.desktop; echo x > ~/.config/systemd/user/x.service",
    "the loader's list": "touch /etc/ld.so.preload && yes",
    "other temporary folders": "touch /var/tmp/swink-$TOKEN && yes; touch /dev/swink-$TOKEN /run/swink-$TOKEN; "
    "[ -e /run/swink-$TOKEN ] && yes",
}

THE_KERNEL = {
    "mount something else there": "mount --bind . $OUT; mount -t tmpfs none $OUT && yes; echo x > $OUT/canary",
    "unmount the walls": "umount .git/hooks; umount -l .git/config; umount .swink; umount .git; umount . ; umount -a; "
    "mkdir -p .git/hooks .swink; echo x > .git/hooks/pre-commit; echo x >> .git/config",
    "remount for writing": "mount -o remount,rw / && yes; mount -o remount,rw,bind .git/config && yes; echo x > .git/config",
    "a namespace of its own": "unshare -Urm sh -c 'echo got in; mount --bind . $OUT; echo x > $OUT/canary' && yes",
    "namespaces one by one": "for kind in -U -m -p -n -i -u -C; do unshare $kind true && yes; done",
    "clone with new namespaces": 'call "r, e = syscall(56, 220, long(0x10000000 | 17), None, None, None, None); '
    'r == 0 and os._exit(0); r > 0 and yes()"',
    "into another's namespace": "nsenter -t $AGENT -m -p sh -c 'echo x > $OUT/canary'; nsenter -t 1 -a true && yes; "
    "nsenter --mount=/proc/$AGENT/ns/mnt true && yes",
    "chroot": "mkdir -p jail; chroot jail true; chroot / true && yes; call \"os.chroot('.'); yes()\"",
    "pivot_root": "mkdir -p new/old; call \"r, e = syscall(155, 41, b'new', b'new/old'); r == 0 and yes()\"",
    "the new mount calls": "call \"r, e = syscall(428, 428, -100, b'/', 1); r >= 0 and yes(); "
    "r, e = syscall(430, 430, b'tmpfs', 0); r >= 0 and yes(); r, e = syscall(442, 442, -100, b'/', 0, None, 0); r >= 0 and yes()\"",
    "make the disk again": "d=$(stat -c %d $OUT); mknod disk b $((d / 256)) $((d % 256)) && yes; mknod mem c 1 1 && yes",
    "open the disk": "for d in /dev/vda /dev/sda /dev/nvme0n1 /dev/dm-0 /dev/mem /dev/kmem /dev/port; do "
    "call \"os.open('$d', os.O_RDONLY); yes()\" 2>/dev/null; done",
    "debugfs": 'debugfs -w -R "write hello.txt $OUT/new" $(df --output=source / | tail -1)',
    "open by handle": "call \"handle = ctypes.create_string_buffer(struct.pack('II', 128, 0) + bytes(128)); mount = ctypes.c_int(); "
    "r, e = syscall(303, 264, -100, (out + '/canary').encode(), handle, ctypes.byref(mount), 0); "
    "d = os.open('.', os.O_RDONLY); r, e = syscall(304, 265, d, handle, 1); r >= 0 and (os.write(r, b'x'), yes())\"",
    "io_uring": 'call "r, e = syscall(425, 425, 8, ctypes.create_string_buffer(256)); r >= 0 and yes()"',
    "trace a process outside": 'call "r, e = syscall(101, 117, long(16), long(victim), None, None); r == 0 and yes(); '
    'r, e = syscall(101, 117, long(16), long(agent), None, None); r == 0 and yes()"',
    "trace a child": 'call "r, e = syscall(101, 117, long(0), long(0), None, None); r == 0 and yes()"',
    "memory of a process outside": "call \"f = open(f'/proc/{agent}/mem', 'r+b'); yes()\"; "
    "cat /proc/$AGENT/maps >/dev/null && yes; call \"b = ctypes.create_string_buffer(16); v = struct.pack('QQ', ctypes.addressof(b), 16); "
    'r, e = syscall(310, 270, long(agent), v, long(1), v, long(1), long(0)); r > 0 and yes()"',
    "end a process outside": 'kill -9 $VICTIM; call "os.kill(victim, 9)"; '
    'call "d = os.pidfd_open(victim); import signal; signal.pidfd_send_signal(d, 9)"',
    "stop a process outside": "kill -STOP $VICTIM && yes; kill -USR2 $AGENT && yes; kill -0 $AGENT && yes",
    "take a descriptor": 'call "d = os.pidfd_open(agent); r, e = syscall(438, 438, d, 1, 0); r >= 0 and yes()"',
    "limits of a process outside": 'call "import resource; resource.prlimit(victim, resource.RLIMIT_NOFILE, (3, 3)); yes()"; '
    "renice -n 19 -p $VICTIM && yes; taskset -p 1 $VICTIM && yes",
    "bpf and perf": 'call "r, e = syscall(321, 280, 0, bytes(128), 128); r >= 0 and yes(); e not in (1, 38) and yes(); '
    'r, e = syscall(298, 241, bytes(128), 0, -1, -1, 0); e not in (1, 38) and yes(); r, e = syscall(323, 282, 0); e not in (1, 38) and yes()"',
    "keys of the session": 'call "r, e = syscall(250, 219, long(0), long(-3), long(0)); r >= 0 and yes(); '
    "r, e = syscall(248, 217, b'user', b'x', b'x', long(1), long(-3)); r >= 0 and yes()\"",
    "settings of the kernel": "f=/proc/sys/kernel/panic; v=$(cat $f); echo $v > $f && yes; sysctl -w kernel.panic=$v && yes",
    "the core pattern": 'f=/proc/sys/kernel/core_pattern; v=$(cat $f); echo "$v" > $f && yes',
    "the magic key": "echo h > /proc/sysrq-trigger && yes",
    "control groups": "mkdir /sys/fs/cgroup/swink-$TOKEN && yes; mkdir /sys/fs/cgroup/pids/swink-$TOKEN && yes; "
    "echo $$ > /sys/fs/cgroup/cgroup.procs && yes; f=$(ls /sys/fs/cgroup/*/release_agent | head -1); echo x > $f && yes",
    "the file system of the kernel": "f=/sys/kernel/mm/transparent_hugepage/defrag; "
    "v=$(sed 's/.*\\[\\(.*\\)\\].*/\\1/' $f); echo $v > $f && yes",
    "the clock and the name": "date -s @0 && yes; hostname evil && yes; call \"r, e = syscall(170, 161, b'evil', 4); r == 0 and yes()\"",
    "modules": "modprobe dummy && yes; call \"r, e = syscall(175, 105, bytes(8), 8, b''); e != 1 and yes()\"",
    "capabilities": "grep -E 'Cap(Eff|Prm|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000 && yes; "
    "grep 'NoNewPrivs:.*1' /proc/self/status || yes; grep 'Seccomp:.*2' /proc/self/status || yes",
    "another user": 'su -c "echo x > $OUT/canary" < /dev/null; sudo -n sh -c "echo x > $OUT/canary"; pkexec true && yes; '
    'setpriv --reuid 1 true && yes; newgrp </dev/null; call "os.setuid(1); yes()"',
    "a set-uid program": "cp /bin/bash mine; chmod 4755 mine; ./mine -p -c 'echo x > $OUT/canary'; ls -l /usr/bin/su; su </dev/null",
    "type into a terminal": "call \"import fcntl; fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x'); yes()\"; "
    "call \"import fcntl, pty; m, s = pty.openpty(); fcntl.ioctl(s, 0x5412, b'x'); yes()\"",
    "type with high bits": "call \"import pty; m, s = pty.openpty(); r, e = syscall(16, 29, s, long((1 << 40) | 0x5412), b'x'); r == 0 and yes()\"",
    "a personality": 'call "r, e = syscall(135, 92, long(0x0400000)); r >= 0 and yes()"',
}

THE_NETWORK = {
    "the shell's tcp": "exec 3<>/dev/tcp/127.0.0.1/$TCP && yes",
    "the shell's udp": "echo x > /dev/udp/127.0.0.1/$UDP && yes",
    "a tcp socket": "call \"socket.create_connection(('127.0.0.1', int(os.environ['TCP']))); yes()\"",
    "a udp socket": "call \"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', int(os.environ['UDP']))); yes()\"",
    "tcp over the other version": "call \"s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM); s.connect(('::ffff:127.0.0.1', int(os.environ['TCP']))); yes()\"",
    "a raw socket": 'call "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); yes()"; call "socket.socket(17, socket.SOCK_RAW, 0); yes()"',
    "families that few know": 'call "[(yes() if syscall(41, 198, f, t, 0)[0] >= 0 else None) for f in (2, 10, 15, 16, 17, 21, 38, 40, 44) for t in (1, 2, 3, 5)]"',
    "a family with high bits": 'call "r, e = syscall(41, 198, long((1 << 40) | 1), long(1), long(0)); r >= 0 and yes()"',
    "a socket of a daemon": "call \"s = socket.socket(socket.AF_UNIX); s.connect(os.environ['STREAM']); yes()\"",
    "a socket in the folder": "call \"s = socket.socket(socket.AF_UNIX); s.connect(os.environ['INSIDE']); yes()\"",
    "an abstract socket": "call \"s = socket.socket(socket.AF_UNIX); s.connect(os.environ['ABSTRACT'].replace('@', chr(0))); yes()\"",
    "datagrams to a daemon": "call \"s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', os.environ['DATAGRAM']); yes()\"",
    "one of a pair sends elsewhere": "call \"a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', os.environ['DATAGRAM']); yes()\"",
    "one of a pair connects elsewhere": "call \"a, b = socket.socketpair(); a.connect(os.environ['STREAM']); yes()\"; "
    "call \"a, b = socket.socketpair(socket.AF_UNIX, 3); a.sendto(b'x', os.environ['DATAGRAM']); yes()\"",
    "the containers' daemon": "curl -s --unix-socket $STREAM http://localhost/ && yes; docker -H unix://$STREAM ps && yes",
    "a name server": "call \"socket.getaddrinfo('example.org', 80); yes()\"; getent hosts example.org && yes",
    "programs that fetch": "curl -s http://127.0.0.1:$TCP/ && yes; wget -qO- http://127.0.0.1:$TCP/ && yes; git ls-remote git://127.0.0.1:$TCP/x && yes",
    "wait to be called": "call \"s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); yes()\"",
    "descriptors that were left open": "ls -l /proc/self/fd | grep -E 'socket|memfd' && yes; "
    "call \"[yes() for f in range(3, 256) if os.path.exists(f'/proc/self/fd/{f}') and os.readlink(f'/proc/self/fd/{f}').startswith('/') and 'fd' not in os.readlink(f'/proc/self/fd/{f}')]\"",
}

READING_SECRETS = {
    "by path": "cat ~/.ssh/id_ed25519 ~/.aws/credentials ~/.netrc ~/.npmrc ~/.bash_history",
    "our own keys": "cat ~/.config/swink-agent/keys.toml ~/.config/gh/hosts.yml",
    "a browser's": "cat ~/.mozilla/firefox/*; cat ~/.local/share/keyrings/*",
    "a folder that is a link": "cat ~/.azure/token; cat $OUT/cloud/token; ls $OUT/cloud/*",
    "by a link": "ln -s ~/.ssh s; cat s/*; ln -s ~/.netrc n; cat n",
    "by a hard link": "ln ~/.ssh/id_ed25519 k; cat k; ln ~/.netrc n; cat n; cp -al ~/.aws a; cat a/*",
    "by the root of a process": "cat /proc/self/root$HOME/.ssh/id_ed25519 /proc/1/root$HOME/.ssh/* /proc/$AGENT/root$HOME/.ssh/*",
    "by dot dot": "cat $ROOT/../home/.ssh/id_ed25519 $ROOT/../home/./.netrc $HOME/../home/.aws/credentials",
    "by a glob": "cat ~/.*/* ~/.* ~/.config/*/* 2>/dev/null",
    "find and cat": "find $HOME $OUT -type f -exec cat {} +",
    "copy the home": "cp -r ~ all; cat -- all/.ssh/* all/.netrc; grep -r secret all",
    "an archive of the home": "tar c ~ | cat",
    "search": "grep -r secret ~ $OUT; rg -uuu secret ~",
    "walk": "call \"[print(open(os.path.join(d, f)).read()) for d, _, fs in os.walk(os.environ['HOME'], onerror=None) for f in fs if os.access(os.path.join(d, f), 4)]\"",
    "move it into view": "mv ~/.ssh mine; cat mine/*; mv ~/.netrc n; cat n",
    "as configuration": "git config -f ~/.netrc -l; bash ~/.ssh/id_ed25519; . ~/.netrc; curl -K ~/.netrc; diff ~/.netrc /dev/null",
    "open as a path, then again": "call \"d = os.open(os.environ['HOME'] + '/.ssh', os.O_PATH); print(open(f'/proc/self/fd/{d}/id_ed25519').read())\"",
    "by its descriptor": "exec 3< ~/.netrc; cat <&3; call \"f = os.open(os.environ['HOME'] + '/.netrc', 0o10000000); print(open(f'/proc/self/fd/{f}').read())\"",
    "passwords of the system": "cat /etc/shadow /etc/gshadow | grep : && yes; cat /etc/sudoers && yes",
    "chmod first": "chmod -R 777 ~/.ssh ~/.netrc; cat ~/.ssh/* ~/.netrc",
    "the environment": "env -u OUT_; export -p; set | grep -i key",
    "the environment of processes": "cat /proc/self/environ /proc/$PPID/environ /proc/$AGENT/environ /proc/$VICTIM/environ /proc/1/environ "
    "/proc/[0-9]*/environ | tr '\\0' '\\n'",
    "arguments and memory of processes": "cat /proc/$AGENT/cmdline /proc/$AGENT/maps /proc/$AGENT/stack /proc/$AGENT/mem; strings /proc/$AGENT/auxv; "
    "cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ",
    "the memory of the machine": "head -c 1000 /proc/kcore | strings; head -c 100 /dev/mem; dmesg && yes",
}

THE_REPOSITORY = {
    "a hook": "echo evil > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "a hook by another way": "cd .git/hooks && echo evil > post-checkout; cp /bin/true $ROOT/.git/hooks/pre-push; ln -s /bin/true .git/hooks/update",
    "a hook through a descriptor": "exec 7<.git/hooks; echo x > /proc/self/fd/7/pre-commit; "
    "call \"d = os.open('.git/hooks', os.O_RDONLY); os.open('pre-commit', os.O_CREAT | os.O_WRONLY, dir_fd=d)\"",
    "a hook from a template": "mkdir -p t/hooks; echo evil > t/hooks/pre-commit; git init --template=$PWD/t .",
    "the hooks folder replaced": "mkdir evil; touch evil/pre-commit; mv .git/hooks old; ln -s ../evil .git/hooks; rm -rf .git/hooks; mv evil .git/hooks",
    "the hooks folder exchanged": "mkdir evil; touch evil/pre-commit; call \"syscall(316, 276, -100, b'evil', -100, b'.git/hooks', 2)\"",
    "the configuration": "echo '[core] fsmonitor = evil' >> .git/config; git config core.fsmonitor evil; git config core.hooksPath evil",
    "the configuration replaced": "cp .git/config c; echo x >> c; mv -f c .git/config; cp c .git/config; rm .git/config; ln -sf /tmp/c .git/config",
    "the configuration truncated": "> .git/config; truncate -s 0 .git/config; call \"os.truncate('.git/config', 0)\"",
    "the configuration by a hard link": "ln .git/config hard; echo x >> hard; call \"os.link('.git/config', 'hard2'); open('hard2', 'w').write('x')\"",
    "the configuration by a link": "ln -s .git/config soft; echo x >> soft; ln -s .git g; echo x >> g/config; echo x >> ./.git/../.git/./config",
    "the configuration by a descriptor": "exec 5<.git/config; echo x > /proc/self/fd/5; call \"f = os.open('.git/config', 0o10000000); open(f'/proc/self/fd/{f}', 'w').write('x')\"",
    "the configuration mapped": "call \"import mmap; f = open('.git/config', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0] = 120\"",
    "modes and times of the protected": "chmod 777 .git/config .git/hooks; chown 1 .git/config; chmod -R 0 .git/hooks; setfattr -n user.x -v x .git/config",
    "another common folder": "echo $PWD/evil > .git/commondir; mkdir .git/commondir; ln -s evil .git/commondir",
    "a configuration of the work tree": "echo '[core] fsmonitor = evil' > .git/config.worktree; mv hello.txt .git/config.worktree; mkdir .git/config.worktree",
    "the repository moved away": "mv .git gone; git init -q .; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit",
    "the repository removed": "rm -rf .git; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit",
    "the repository as a file": 'mv .git gone; echo "gitdir: $PWD/evil" > .git',
    "the repository exchanged": "cp -r .git other; echo x >> other/config; call \"syscall(316, 276, -100, b'other', -100, b'.git', 2)\"",
    "a repository further in": "echo evil > vendor/lib/.git/hooks/pre-commit; echo x >> vendor/lib/.git/config; mkdir vendor/lib/.git/commondir",
    "a repository further in moved": "mv vendor/lib/.git v; mv v/config c; mv vendor/lib w; mv vendor old; echo x >> old/lib/.git/config; "
    "mkdir -p vendor/lib/.git/hooks; echo x > vendor/lib/.git/hooks/pre-commit; echo x > vendor/lib/.git/config",
    "a module's": "echo x >> .git/modules/sub/config; touch .git/modules/sub/hooks/x; mv .git/modules/sub s; mv .git/modules m; mkdir -p .git/modules/sub; echo x > .git/modules/sub/config",
    "a work tree's": "echo $PWD/evil > .git/worktrees/tree/commondir; mv .git/worktrees w; mkdir -p .git/worktrees/tree; echo evil > .git/worktrees/tree/commondir",
    "settings of ours": "mkdir .swink; mkdir -p .swink; echo x > .swink/settings.toml; echo x > .swink",
    "settings of ours by a move": "mkdir mine; echo x > mine/settings.toml; mv mine .swink; mv -T mine .swink; ln -s mine .swink; cp -r mine .swink",
    "what an editor runs": "mkdir -p .vscode .idea; echo x > .vscode/tasks.json; echo x > .idea/startup.xml",
    "many at once": "for i in $(seq 50); do (mkdir -p .swink; echo x > .swink/s; echo x > .git/commondir; mv .git g$i; mv .swink s$i) & done; wait",
}

STAYING_BEHIND = {
    "in the background": "sleep 6$TOKEN & sleep 0.05",
    "without a hangup": "nohup sleep 6$TOKEN > /dev/null 2>&1 & disown; sleep 0.05",
    "in its own session": "setsid sleep 6$TOKEN > /dev/null 2>&1 < /dev/null & sleep 0.05",
    "as an orphan of an orphan": "(setsid sh -c 'setsid sleep 6$TOKEN & setsid sleep 6$TOKEN &' > /dev/null 2>&1 &) ; sleep 0.05",
    "deaf to signals": "sh -c 'trap \"\" HUP TERM INT; sleep 6$TOKEN' & sleep 0.05; kill -9 $$",
    "a daemon with a clean environment": 'call "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); [os.close(f) for f in range(3)]; '
    "os.execve('/bin/sleep', ['sleep', '6' + os.environ['TOKEN']], {})\"; sleep 0.1",
    "by the system's timers": "systemd-run --user sleep 6$TOKEN && yes; systemd-run sleep 6$TOKEN && yes; echo sleep 6$TOKEN | at now && yes; "
    "echo '# swink' | crontab - && yes; ls /var/spool/cron/* && yes; touch /etc/cron.d/swink && yes",
}

ALL = {
    f"{group}: {name}": script
    for group, attempts in {
        "write": WRITING_OUTSIDE,
        "kernel": THE_KERNEL,
        "network": THE_NETWORK,
        "read": READING_SECRETS,
        "repository": THE_REPOSITORY,
        "stay": STAYING_BEHIND,
    }.items()
    for name, script in attempts.items()
}


def test_there_are_enough_attempts() -> None:
    assert len(ALL) >= 120


@pytest.mark.parametrize("name", ALL)
async def test_no_attempt_gets_out(name: str, arena: Any) -> None:
    outcome, found = await arena.attempt(PRELUDE + ALL[name] + "\ntrue")
    assert found == [], outcome.output
    assert outcome.code in (0, -9), outcome.output


HARMLESS = {
    *(f"write: {name}" for name in WRITING_OUTSIDE if name not in ("the loader's list", "other temporary folders")),
    *(f"read: {name}" for name in READING_SECRETS if "system" not in name and "machine" not in name),
    *(f"repository: {name}" for name in THE_REPOSITORY),
    *(f"network: {name}" for name in ("the shell's tcp", "the shell's udp", "a tcp socket", "a udp socket")),
    *(f"network: {name}" for name in ("a socket of a daemon", "an abstract socket", "datagrams to a daemon")),
    *(f"network: {name}" for name in ("one of a pair sends elsewhere", "a socket in the folder")),
    *("kernel: end a process outside", "kernel: memory of a process outside", "kernel: capabilities"),
}
# What an ordinary file system refuses to anybody, or what this user may not do without walls either.
NOT_EVERYWHERE = {
    *("write: time stamps and attributes", "write: the folder of a process outside", "read: by the root of a process"),
    *("write: descriptors of processes outside", "kernel: memory of a process outside", "write: chown"),
    *("write: move a folder in", "read: as configuration", "read: arguments and memory of processes"),
    *("read: the environment", "read: the environment of processes", "repository: many at once"),
}


@pytest.mark.parametrize("name", sorted(HARMLESS - NOT_EVERYWHERE))
async def test_without_walls_the_same_attempt_succeeds(name: str, playground: Any) -> None:
    """Else it would prove nothing that it fails."""
    with open_unconfined(playground.profile()) as sandbox:
        outcome = await playground.run(sandbox, PRELUDE + ALL[name] + "\ntrue")
    assert playground.check(outcome) != [], outcome.output


# -- a home that can be written ------------------------------------------------------------------------------------

AT_HOME = {
    "start files that exist": "echo evil >> ~/.bashrc; echo evil >> ~/.profile; rm ~/.bashrc; mv ~/.profile p; > .gitconfig",
    "start files that are missing": "for f in .bash_profile .zshrc .zshenv .bash_aliases .inputrc; do echo evil > ~/$f; ln -s x $f; mkdir $f; done",
    "folders of configuration": "echo x >> ~/.config/fish/config.fish; mkdir -p ~/.config/autostart ~/.config/systemd/user; "
    "touch ~/.config/autostart/x.desktop ~/.config/systemd/user/x; mkdir -p ~/.local/bin; touch ~/.local/bin/ls",
    "a folder of configuration moved": "mv ~/.config ~/c; mkdir -p ~/.config/fish; echo evil > ~/.config/fish/config.fish; cat ~/c/gh/hosts.yml ~/c/*/*",
    "secrets moved into view": "mv ~/.ssh s; cat s/*; mv ~/.local l; cat l/share/keyrings/*; mv ~/.local/share l2; cat l2/keyrings/*; mv ~/.netrc n; cat n",
    "secrets of the second command": "cat ~/.ssh/* ~/.aws/* ~/.netrc ~/.config/gh/* ~/.local/share/keyrings/*; cat ~/*/keyrings/* ~/*/share/keyrings/*",
    "keys that let somebody in": "mkdir -p ~/.ssh; echo x > ~/.ssh/authorized_keys; rm -rf ~/.ssh; rmdir ~/.ssh; ln -s x ~/.ssh",
    "credentials that run programs": "mkdir -p ~/.kube ~/.docker; echo x > ~/.kube/config; echo x > ~/.docker/config.json; echo x > ~/.aws/config",
}


@pytest.mark.parametrize("name", AT_HOME)
async def test_a_home_that_can_be_written_keeps_its_secrets_and_start_files(
    name: str, playground: Any, open_backend: OpenFn
) -> None:
    sandbox = open_backend(playground.profile(root=playground.home))
    for script in (AT_HOME[name], AT_HOME[name], AT_HOME["secrets of the second command"]):
        outcome = await playground.run(sandbox, PRELUDE + script + "\ntrue")
        assert playground.canary not in outcome.output
    changed = [line for line in playground.check(outcome) if "-> None" in line or "None ->" not in line]
    assert changed == []
    new = {path.name for path in playground.home.iterdir()} - {Path(path).name for path in playground.before}
    assert not new & {".bash_profile", ".zshrc", ".zshenv", ".bash_aliases", ".inputrc", ".kube", ".docker"}
    assert not (playground.home / ".config/autostart").exists()
    assert not (playground.home / ".local/bin").exists()


async def test_a_home_that_can_be_written_can_be_worked_in(playground: Any, open_backend: OpenFn) -> None:
    sandbox = open_backend(playground.profile(root=playground.home))
    outcome = await playground.run(sandbox, "echo more >> notes.txt; mkdir -p work; echo x > work/file; cat notes.txt")
    assert outcome.output == "# as it was\nmore\n"
    assert (playground.home / "work/file").read_text() == "x\n"
