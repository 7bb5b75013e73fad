// The yardstick: what plain UDP does on this machine with the same datagrams that softroce sends.
//
//   udp_raw sink   ADDRESS PORT CORE SECONDS PAYLOAD HEADERS   receives a stream and prints what arrived.
//   udp_raw source ADDRESS PORT CORE SECONDS PAYLOAD HEADERS   sends one to ADDRESS:PORT.
//   udp_raw pong   ADDRESS PORT CORE busy|block                answers each datagram until one is empty.
//   udp_raw ping   ADDRESS PORT CORE busy|block COUNT SIZE     makes round trips and prints their times.
//
// Streams use UDP_SEGMENT and UDP_GRO: each send carries as many datagrams of PAYLOAD + HEADERS bytes as
// softroce's does. Prints one JSON object; exit code 3 when the system refuses.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int kBufferBytes = 16 << 20;
constexpr std::size_t kSendBytesMax = 65000;  // of one offloaded send, as softroce's
constexpr std::size_t kReceiveMessages = 16, kReceiveBytes = 65536;
constexpr int kFirstWait_ms = 10'000;  // for the other end to start
constexpr std::int64_t kNsPerS = 1'000'000'000;

[[noreturn]] void refuse(const char* what) {
  std::fprintf(stderr, "udp_raw: %s: %s\n", what, std::strerror(errno));
  std::exit(3);
}

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * kNsPerS + time.tv_nsec;
}

class Socket {
 public:
  Socket() : descriptor_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (descriptor_ < 0) refuse("no socket");
    // Above the system's limit where that is allowed.
    if (!set(SOL_SOCKET, SO_RCVBUFFORCE, kBufferBytes)) set(SOL_SOCKET, SO_RCVBUF, kBufferBytes);
    if (!set(SOL_SOCKET, SO_SNDBUFFORCE, kBufferBytes)) set(SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(descriptor_); }

  bool set(int level, int name, int value) {
    return setsockopt(descriptor_, level, name, &value, sizeof value) == 0;
  }
  void bind_to(const sockaddr_in& address) {
    if (bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) refuse("bind");
  }
  bool wait(int timeout_ms) const {
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, timeout_ms) > 0;
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

void say_ready() {
  std::puts("ready");
  std::fflush(stdout);
}

struct Stream {
  std::int64_t duration_ns;
  std::size_t payload_bytes, datagram_bytes;
};

int sink(const sockaddr_in& address, const Stream& stream) {
  Socket socket;
  if (!socket.set(SOL_UDP, UDP_GRO, 1)) refuse("UDP_GRO");
  socket.bind_to(address);
  say_ready();
  std::vector<std::byte> buffer(kReceiveMessages * kReceiveBytes);
  mmsghdr messages[kReceiveMessages];
  iovec vectors[kReceiveMessages];
  std::uint64_t bytes = 0, calls = 0, blocks = 0;
  std::int64_t first = 0, last = 0;
  // Until nothing has come for a while: the sender stops by itself.
  for (int wait_ms = kFirstWait_ms; socket.wait(wait_ms); wait_ms = 500) {
    for (bool more = true; more;) {
      for (std::size_t at = 0; at < kReceiveMessages; ++at) {
        vectors[at] = {buffer.data() + at * kReceiveBytes, kReceiveBytes};
        messages[at] = {};
        messages[at].msg_hdr.msg_iov = &vectors[at];
        messages[at].msg_hdr.msg_iovlen = 1;
      }
      const int count = recvmmsg(socket.get(), messages, kReceiveMessages, MSG_DONTWAIT, nullptr);
      more = count > 0;
      if (!more) break;
      ++calls;
      last = now_ns();
      if (first == 0) {  // the clock starts after what came first
        first = last;
        continue;
      }
      for (int at = 0; at < count; ++at) bytes += messages[at].msg_len;
      blocks += static_cast<std::uint64_t>(count);
    }
  }
  const double datagrams = static_cast<double>(bytes) / static_cast<double>(stream.datagram_bytes);
  const double seconds = static_cast<double>(last - first) / kNsPerS;
  const double gbps =
      seconds > 0 ? datagrams * static_cast<double>(stream.payload_bytes) * 8 / seconds / 1e9 : 0;
  std::printf(
      "{\"goodput_gbps\": %.4f, \"datagrams\": %.0f, \"seconds\": %.4f, \"calls\": %llu, \"blocks\": %llu}\n",
      gbps, datagrams, seconds, static_cast<unsigned long long>(calls),
      static_cast<unsigned long long>(blocks));
  return bytes > 0 ? 0 : 1;
}

int source(const sockaddr_in& address, const Stream& stream) {
  Socket socket;
  const int segment = static_cast<int>(stream.datagram_bytes);
  if (!socket.set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) || !socket.set(SOL_UDP, UDP_SEGMENT, segment))
    refuse("UDP_SEGMENT");
  const std::size_t size = kSendBytesMax / stream.datagram_bytes * stream.datagram_bytes;
  std::vector<std::byte> buffer(size, std::byte{7});
  std::uint64_t sent = 0, refused = 0;
  const std::int64_t begin = now_ns();
  std::int64_t end = begin;
  for (; end - begin < stream.duration_ns; end = now_ns()) {
    const ssize_t taken = sendto(socket.get(), buffer.data(), buffer.size(), 0,
                                 reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (taken >= 0) {
      sent += static_cast<std::uint64_t>(taken);
    } else if (errno == ENOBUFS || errno == EAGAIN || errno == ECONNREFUSED) {
      ++refused;
    } else {
      refuse("sendto");
    }
  }
  std::printf("{\"datagrams\": %llu, \"seconds\": %.4f, \"refused\": %llu}\n",
              static_cast<unsigned long long>(sent / stream.datagram_bytes),
              static_cast<double>(end - begin) / kNsPerS, static_cast<unsigned long long>(refused));
  return 0;
}

// One datagram. Polling asks again and again without sleeping.
ssize_t receive(const Socket& socket, bool busy, std::vector<std::byte>& buffer, sockaddr_in& from) {
  socklen_t length = sizeof from;
  while (true) {
    const ssize_t size = recvfrom(socket.get(), buffer.data(), buffer.size(), busy ? MSG_DONTWAIT : 0,
                                  reinterpret_cast<sockaddr*>(&from), &length);
    if (size >= 0) return size;
    if (errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED) refuse("recvfrom");
  }
}

int pong(const sockaddr_in& address, bool busy) {
  Socket socket;
  socket.bind_to(address);
  say_ready();
  std::vector<std::byte> buffer(2048);
  sockaddr_in from{};
  if (!socket.wait(kFirstWait_ms)) return 1;
  for (ssize_t size = 1; (size = receive(socket, busy, buffer, from)) > 0;)
    sendto(socket.get(), buffer.data(), static_cast<std::size_t>(size), 0,
           reinterpret_cast<const sockaddr*>(&from), sizeof from);
  return 0;
}

int ping(const sockaddr_in& address, bool busy, std::size_t count, std::size_t size) {
  constexpr std::size_t kWarmup = 200;
  Socket socket;
  std::vector<std::byte> buffer(2048);
  std::vector<std::int64_t> took_ns;
  sockaddr_in from{};
  const auto* target = reinterpret_cast<const sockaddr*>(&address);
  for (std::size_t round = 0; round < count + kWarmup; ++round) {
    const std::int64_t begin = now_ns();
    if (sendto(socket.get(), buffer.data(), size, 0, target, sizeof address) < 0) refuse("sendto");
    if (round == 0 && !socket.wait(kFirstWait_ms)) refuse("no answer");
    receive(socket, busy, buffer, from);
    if (round >= kWarmup) took_ns.push_back(now_ns() - begin);
  }
  sendto(socket.get(), buffer.data(), 0, 0, target, sizeof address);
  std::sort(took_ns.begin(), took_ns.end());
  const auto at = [&](double part) {
    return static_cast<double>(took_ns[static_cast<std::size_t>(part * static_cast<double>(count - 1))]) /
           1000;
  };
  std::printf("{\"rtt_us\": %.3f, \"rtt_us_p10\": %.3f, \"rtt_us_p90\": %.3f, \"count\": %zu}\n", at(0.5),
              at(0.1), at(0.9), count);
  return 0;
}

void pin(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core), &cores);
  if (core >= 0 && sched_setaffinity(0, sizeof cores, &cores) != 0) refuse("this core");
}

int usage() {
  std::fputs(
      "udp_raw: sink|source ADDRESS PORT CORE SECONDS PAYLOAD HEADERS, pong ADDRESS PORT CORE busy|block, "
      "ping ADDRESS PORT CORE busy|block COUNT SIZE\n",
      stderr);
  return 2;
}

}  // namespace

int main(int count, char** words) {
  if (count < 6) return usage();
  const std::string_view what = words[1];
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(words[3])));
  if (inet_pton(AF_INET, words[2], &address.sin_addr) != 1) return usage();
  pin(std::atoi(words[4]));
  const bool busy = std::string_view(words[5]) == "busy";
  if (what == "pong") return pong(address, busy);
  if (count < 8) return usage();
  const auto sixth = static_cast<std::size_t>(std::atoll(words[6]));
  const auto seventh = static_cast<std::size_t>(std::atoll(words[7]));
  if (what == "ping" && sixth > 0 && seventh > 0 && seventh <= 1024)
    return ping(address, busy, sixth, seventh);
  const Stream stream{static_cast<std::int64_t>(std::atof(words[5]) * kNsPerS), sixth, sixth + seventh};
  if (stream.datagram_bytes == 0 || stream.datagram_bytes > kSendBytesMax) return usage();
  if (what == "sink") return sink(address, stream);
  return what == "source" ? source(address, stream) : usage();
}
