"""The seccomp filter of sandboxes.

Ordinary programs work. Calls that administer the kernel fail with EPERM, unknown calls with ENOSYS,
so that programs fall back to older calls.
"""

import platform
from typing import Any

_EPERM = 1
_ENOSYS = 38
_EPROTONOSUPPORT = 93
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
# NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT, NETLINK_GENERIC: ip, ss, libudev, iw
_NETLINK_PROTOCOLS = (0, 4, 15, 16)
_NETLINK_MAX = 32  # MAX_LINKS
_INT = 0xFFFFFFFF
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NAMESPACE_FLAGS = 0x7E020000

_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}

_DENIED = """
_sysctl acct create_module delete_module finit_module get_kernel_syms init_module ioperm iopl
kexec_file_load kexec_load lookup_dcookie nfsservctl query_module reboot swapoff swapon sysfs
syslog uselib vm86 vm86old
fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_by_handle_at open_tree
pivot_root quotactl quotactl_fd umount umount2
setns unshare
add_key keyctl request_key
adjtimex clock_adjtime clock_adjtime64 clock_settime clock_settime64 settimeofday stime
afs_syscall bpf epoll_ctl_old epoll_wait_old fanotify_init get_mempolicy getpmsg io_uring_enter
io_uring_register io_uring_setup mbind migrate_pages move_pages perf_event_open putpmsg security
set_mempolicy set_mempolicy_home_node tuxcall userfaultfd vhangup vserver
""".split()

_ALLOWED = """
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown chroot
clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3
epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve
execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark
fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr
flock fork fremovexattr fsetxattr fstat fstat64 fstatat fstatat64 fstatfs fstatfs64 fsync
ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake
futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid
getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy
io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set
kcmp kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link
linkat listen listxattr llistxattr llseek lremovexattr lseek lsetxattr lstat lstat64 madvise
map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock
mlock2 mlockall mmap mmap2 modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive
mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget
msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat
openat2 pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_madvise
process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64 ptrace pwrite64
pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmmsg_time64
recvmsg remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rseq
rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr
sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop
semtimedop_time64 sendfile sendfile64 sendmmsg sendmsg sendto set_robust_list set_thread_area
set_tid_address setdomainname setfsgid setfsuid setgid setgroups sethostname setitimer setpgid
setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr
shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat stat64
statfs statfs64 statx symlink symlinkat sync sync_file_range sync_file_range2 syncfs sysinfo tee
tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64
timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime
timerfd_settime64 times tkill truncate truncate64 umask uname unlink unlinkat ustat utime
utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid write writev
""".split()


def _rule(names: list[str], action: str, **more: Any) -> dict[str, Any]:
    return {"names": names, "action": action, **more}


def _equals(index: int, value: int, *, mask: int = _INT) -> dict[str, Any]:
    """Compare the argument's bits in `mask` with `value`.

    A filter sees 64 bits where the kernel reads an int. A rule about all 64 bits does not match the
    same int with other high bits; therefore no rule here allows what differs from a value.
    """
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _allow(name: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    return _rule([name], "SCMP_ACT_ALLOW", args=list(conditions))


SECCOMP: dict[str, Any] = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": _ENOSYS,
    # The native architecture only: a filter for 32-bit programs as well would triple the start time
    # of every command (20 ms to 70 ms). Calls by int 0x80, of x32 and of 32-bit ARM kill the
    # process, so socketcall, whose arguments no filter can see, is unreachable.
    "architectures": [_ARCHITECTURES[platform.machine()]],
    "syscalls": [
        _rule(_ALLOWED, "SCMP_ACT_ALLOW"),
        _rule(_DENIED, "SCMP_ACT_ERRNO", errnoRet=_EPERM),
        # A new user namespace would open administrative calls of the kernel to anyone. clone3
        # passes its flags by pointer: ENOSYS makes libc use clone.
        _allow("clone", _equals(0, 0, mask=_NAMESPACE_FLAGS)),
        _rule(["clone3"], "SCMP_ACT_ERRNO", errnoRet=_ENOSYS),
        # Other families are little tested, and creating a socket loads their kernel modules. Memory
        # of packet socket rings and netlink queues is charged to no sandbox: 600 MB fitted into a
        # sandbox of 128 MB.
        *(_allow("socket", _equals(0, family)) for family in (_AF_UNIX, _AF_INET, _AF_INET6)),
        *(
            _allow("socket", _equals(0, _AF_NETLINK), _equals(2, protocol))
            for protocol in _NETLINK_PROTOCOLS
        ),
        # The answer of a kernel built without them. useradd, passwd and sudo treat any other error
        # of an audit socket as a failure.
        *(
            _rule(
                ["socket"],
                "SCMP_ACT_ERRNO",
                errnoRet=_EPROTONOSUPPORT,
                args=[_equals(0, _AF_NETLINK), _equals(2, protocol)],
            )
            for protocol in range(_NETLINK_MAX)
            if protocol not in _NETLINK_PROTOCOLS
        ),
        # The kernel creates both sockets before it finds that the family has no pairs.
        _allow("socketpair", _equals(0, _AF_UNIX)),
        *(
            _allow("personality", _equals(0, persona))
            for persona in (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
        ),
    ],
}
