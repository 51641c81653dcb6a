"""Programs that hold many kinds of things, and say at each line whether all of it is as it was.

Each counts on stdout while everything is in order, and ends with the first thing that is not.
They are texts, for they run in a container: ``HEAD`` and ``TAIL`` go around what they check.
"""

HEAD = r"""
import ctypes, fcntl, mmap, os, select, signal, socket, struct, sys, tempfile, termios, threading
import time, hashlib
libc = ctypes.CDLL(None, use_errno=True)
checks = []

def check(function):
    checks.append(function)
    return function

def call(name, *arguments):
    found = getattr(libc, name)(*arguments)
    assert found != -1, (name, os.strerror(ctypes.get_errno()))
    return found
"""
TAIL = r"""
for count in range(10**9):
    for function in checks:
        try:
            function()
        except BaseException as error:
            print("lost:", function.__name__, repr(error), flush=True)
            os._exit(1)
    print(count, flush=True)
    time.sleep(.02)
"""

FILES = (
    HEAD
    + r"""
PATTERN = bytes(range(256)) * 4096

def gone(path):
    file = open(path, "w+b")
    os.unlink(path)
    return file

large = gone("/large")
for _ in range(40): large.write(PATTERN)
large.flush()
sparse = gone("/sparse"); sparse.truncate(8 << 30)
sparse.seek(5 << 30); sparse.write(PATTERN); sparse.flush()
tmp = gone("/scratch/tmp"); tmp.write(PATTERN); tmp.flush()
shared = gone("/data/shared"); shared.write(PATTERN); shared.flush()

@check
def deleted():
    for at in (0, 39 << 20):
        assert os.pread(large.fileno(), 1 << 20, at) == PATTERN
    assert os.fstat(sparse.fileno()).st_size == 8 << 30
    assert os.fstat(sparse.fileno()).st_blocks < 64 << 11
    assert os.pread(sparse.fileno(), 1 << 20, 5 << 30) == PATTERN
    assert os.pread(sparse.fileno(), 4, 1 << 30) == bytes(4)
    for file in (tmp, shared):
        assert os.pread(file.fileno(), 1 << 20, 0) == PATTERN

linked = open("/one", "w+b"); linked.write(PATTERN); linked.flush()
os.link("/one", "/two"); os.link("/one", "/three"); os.unlink("/one")
again = open("/two", "r+b")

@check
def hard_links():
    assert os.path.samestat(os.fstat(linked.fileno()), os.stat("/three"))
    assert os.path.samestat(os.fstat(again.fileno()), os.stat("/three"))

SETLK, WRLCK = 37, 1
whole, part, own, far = (open(n, "w+b") for n in ("/l1", "/l2", "/l3", "/data/l4"))
fcntl.flock(whole, fcntl.LOCK_EX)
fcntl.flock(far, fcntl.LOCK_SH)
fcntl.lockf(part, fcntl.LOCK_EX, 10, 20)
fcntl.fcntl(own, SETLK, struct.pack("hhqqi4x", WRLCK, 0, 5, 5, 0))

def is_locked(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False

@check
def locks():
    now = fcntl.LOCK_EX | fcntl.LOCK_NB
    with open("/l1", "r+b") as f: assert is_locked(lambda: fcntl.flock(f, now))
    with open("/data/l4", "r+b") as f: assert is_locked(lambda: fcntl.flock(f, now))
    with open("/l3", "r+b") as f:
        assert is_locked(lambda: fcntl.fcntl(f, SETLK, struct.pack("hhqqi4x", WRLCK, 0, 5, 5, 0)))
        fcntl.fcntl(f, SETLK, struct.pack("hhqqi4x", WRLCK, 0, 50, 5, 0))
    child = os.fork()
    if child == 0:
        with open("/l2", "r+b") as f:
            free = not is_locked(lambda: fcntl.lockf(f, now, 5, 0))
            os._exit(0 if free and is_locked(lambda: fcntl.lockf(f, now, 1, 25)) else 1)
    assert os.waitpid(child, 0)[1] == 0

grown = open("/data/grown", "ab")
other = open("/log", "a+b")

@check
def growing():
    for file in (grown, other): file.write(b"line\n"); file.flush()
    assert os.path.getsize("/data/grown") == os.path.getsize("/log")

mapped = open("/mapped", "w+b"); mapped.truncate(1 << 20)
shared_map = mmap.mmap(mapped.fileno(), 1 << 20)
private_map = mmap.mmap(mapped.fileno(), 1 << 20, flags=mmap.MAP_PRIVATE)
private_map[:5] = b"mine."

@check
def mappings():
    at = len(checks) * 8
    shared_map[at:at + 8] = struct.pack("q", grown.tell())
    assert os.pread(mapped.fileno(), 8, at) == struct.pack("q", grown.tell())
    assert private_map[:5] == b"mine." and shared_map[:5] == bytes(5)
"""
    + TAIL
)

MEMORY = (
    HEAD
    + r"""
libc.shmat.restype = ctypes.c_void_p
SIZE = 32 << 20
segment = call("shmget", 4711, ctypes.c_size_t(SIZE), 0o1600)
place = libc.shmat(segment, None, 0)
system_v = (ctypes.c_char * SIZE).from_address(place)
content = os.urandom(1 << 20)
for at in range(0, SIZE, 1 << 20): ctypes.memmove(place + at, content, 1 << 20)
semaphores = call("semget", 4712, 2, 0o1600)
call("semctl", semaphores, 1, 16, 7)
queue = call("msgget", 4713, 0o1600)
message = ctypes.create_string_buffer(struct.pack("l", 5) + b"hello")
call("msgsnd", queue, message, 5, 0)

@check
def system_v_ipc():
    assert ctypes.string_at(place + SIZE - (1 << 20), 1 << 20) == content
    assert call("shmget", 4711, ctypes.c_size_t(SIZE), 0o600) == segment
    assert call("semctl", semaphores, 1, 12, 0) == 7
    assert call("msgrcv", queue, message, 5, 0, 0) == 5 and message.raw[8:13] == b"hello"
    call("msgsnd", queue, message, 5, 0)

with open("/dev/shm/posix", "w+b") as file:
    file.write(content)
    posix = mmap.mmap(file.fileno(), len(content))
memory = os.memfd_create("anonymous"); os.write(memory, content)
anonymous = mmap.mmap(-1, len(content)); anonymous[:] = content
os.makedirs("/scratch/many")
for n in range(100): open(f"/scratch/many/{n}", "w").write(str(n))
os.symlink("many/5", "/scratch/link")
os.chmod("/scratch/many/7", 0o640)

@check
def shared_memory():
    assert posix[:] == content == open("/dev/shm/posix", "rb").read()
    assert os.pread(memory, len(content), 0) == content == anonymous[:]
    assert [open(f"/scratch/many/{n}").read() for n in range(100)] == [str(n) for n in range(100)]
    assert os.readlink("/scratch/link") == "many/5" and open("/scratch/link").read() == "5"
    assert os.stat("/scratch/many/7").st_mode & 0o777 == 0o640

large = os.urandom(96 << 20); digest = hashlib.sha256(large).digest()
hole = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
hole[3 << 30] = 9
locked = mmap.mmap(-1, 1 << 16)
rounds = 0

@check
def large_memory():
    global rounds
    rounds += 1
    assert hole[3 << 30] == 9 and hole[1 << 30] == 0
    if rounds % 20 == 0: assert hashlib.sha256(large).digest() == digest
"""
    + TAIL
)

PROCESSES = (
    HEAD
    + r"""
def served(work):
    "Start a child that answers each byte that it gets by what ``work`` returns."
    here, there = socket.socketpair()
    pid = os.fork()
    if pid:
        there.close()
        return pid, here
    here.close()
    work_now = work()
    while there.recv(1): there.sendall(work_now())
    os._exit(0)

def ask(wire):
    wire.sendall(b"?")
    return wire.recv(4096)

def wanderer():
    os.setsid(); os.makedirs("/home/deep/er", exist_ok=True); os.chdir("/home/deep/er")
    grandchild, wire = served(lambda: lambda: f"{os.getpid()} {os.getppid()}".encode())
    return lambda: f"{os.getcwd()} {os.getsid(0)} ".encode() + ask(wire)

def stray():
    if os.fork(): os._exit(0)
    return lambda: str(os.getppid()).encode()

tree, orphan = served(wanderer), served(stray)
os.waitpid(orphan[0], 0)
zombie = os.fork()
if zombie == 0: os._exit(3)
first = ask(tree[1]), ask(orphan[1])

@check
def process_tree():
    assert (ask(tree[1]), ask(orphan[1])) == first, first
    assert first[0].startswith(f"/home/deep/er {tree[0]} ".encode())
    assert os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT).si_status == 3

os.makedirs("/lost/here"); os.chdir("/lost/here")
wet, dry = os.pipe()
os.write(dry, b"in the pipe")
left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
left.send(b"one"); left.send(b"two")
listener = socket.socket(socket.AF_UNIX); listener.bind("/listener"); listener.listen()
client = socket.socket(socket.AF_UNIX); client.connect("/listener"); peer, _ = listener.accept()
tcp = socket.create_server(("127.0.0.1", 0)); near = socket.create_connection(tcp.getsockname())
distant, _ = tcp.accept(); near.sendall(b"on the way")
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); datagrams.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
master, slave = os.openpty()
attributes = termios.tcgetattr(slave); attributes[3] &= ~termios.ECHO
termios.tcsetattr(slave, termios.TCSANOW, attributes)

@check
def wires():
    assert os.getcwd() == "/lost/here"
    assert os.read(wet, 100) == b"in the pipe"; os.write(dry, b"in the pipe")
    assert right.recv(9) == b"one"; left.send(b"three"); assert right.recv(9) == b"two"
    assert right.recv(9) == b"three"; left.send(b"one"); left.send(b"two")
    client.sendall(b"ping"); assert peer.recv(9) == b"ping"
    assert distant.recv(99) == b"on the way"; near.sendall(b"on the way")
    sender.sendto(b"datagram", datagrams.getsockname()); assert datagrams.recv(9) == b"datagram"
    os.write(master, b"typed\n"); assert os.read(slave, 9) == b"typed\n"
    os.write(slave, b"said"); assert os.read(master, 9) == b"said"
    assert not termios.tcgetattr(slave)[3] & termios.ECHO

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGRTMIN + 1])
os.kill(os.getpid(), signal.SIGUSR1)
class Value(ctypes.Union): _fields_ = [("number", ctypes.c_int), ("pointer", ctypes.c_void_p)]
def queue_signals():
    for number in (7, 8, 9):
        libc.sigqueue(os.getpid(), signal.SIGRTMIN + 1, Value(number=number))
queue_signals()
libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, Value]

@check
def pending_signals():
    assert signal.sigpending() == {signal.SIGUSR1, signal.SIGRTMIN + 1}
    info = [signal.sigtimedwait([signal.SIGRTMIN + 1], 0) for _ in range(3)]
    assert all(found and found.si_pid == os.getpid() for found in info), info
    queue_signals()

ticks = [0, 0]
def tick(*_): ticks[0] += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, .01, .01)
timer = call("timerfd_create", 1, 0)
call("timerfd_settime", timer, 0, struct.pack("qqqq", 0, 10_000_000, 0, 10_000_000), None)
events = call("eventfd", 41, 0)
waiting = select.epoll(); waiting.register(events, select.EPOLLIN)
watch = call("inotify_init1", os.O_NONBLOCK); call("inotify_add_watch", watch, b"/lost", 0x100)

def work():
    while True:
        ticks[1] += 1
        time.sleep(.005)

threading.Thread(target=work, daemon=True).start()
before = [time.monotonic(), time.time(), 0, 0]

@check
def timers():
    now = time.monotonic(), time.time()
    assert now[0] > before[0] and now[1] > before[1], (now, before)
    time.sleep(.03)
    assert ticks[0] > before[2] and ticks[1] > before[3], (ticks, before)
    assert struct.unpack("q", os.read(timer, 8))[0] > 0
    before[:] = [*now, *ticks]
    assert waiting.poll(0) == [(events, select.EPOLLIN)]
    name = f"/lost/{time.monotonic_ns()}"; open(name, "w").close(); os.unlink(name)
    assert len(os.read(watch, 4096)) > 16
"""
    + TAIL
)

THREADS = (
    HEAD
    + r"""
threading.stack_size(65536)
waits, done = [threading.Lock() for _ in range(2000)], [0] * 2000
for lock in waits: lock.acquire()

def work(mine):
    while True:
        waits[mine].acquire()
        done[mine] += 1

for mine in range(2000): threading.Thread(target=work, args=(mine,), daemon=True).start()
rounds = 0

@check
def threads():
    "A few of them at each line; all of them in forty lines."
    global rounds
    mine = range(rounds % 40, 2000, 40)
    wanted = rounds // 40 + 1
    rounds += 1
    for one in mine: waits[one].release()
    until = time.monotonic() + 20
    while any(done[one] < wanted for one in mine):
        assert time.monotonic() < until, [one for one in mine if done[one] < wanted]
        time.sleep(.002)
"""
    + TAIL
)
