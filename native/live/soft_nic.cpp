#include "live/soft_nic.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "live/nic_buffers.hpp"
#include "live/nic_sink.hpp"
#include "live/sockets/socket_options.hpp"

namespace genie::live {
namespace {

std::int64_t steady_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// A socket for each source port may be more than a shell allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

SoftNic::SoftNic(const NicConfig& config, NicOwner& owner)
    : config_(config),
      owner_(owner),
      epoch_ns_(steady_ns()),
      memory_(config.memory_bytes),
      port_(config.debt_limit),
      receive_buffer_(kReceiveMessages * kReceiveBytes),
      numbers_(config.local_rank) {
  config_.writable_bytes = std::min<std::uint64_t>(config.writable_bytes, config.memory_bytes);
  config_.readable_bytes = std::min<std::uint64_t>(config.readable_bytes, config.memory_bytes);
  raise_descriptor_limit();
}

TimePs SoftNic::now() const { return (steady_ns() - epoch_ns_) * kPsPerNs; }

std::string SoftNic::open() {
  std::string error;
  std::vector<Socket> receivers = open_receivers(config_.address, config_.port, 1, error);
  return receivers.empty() ? error : open_with(receivers.front().release());
}

std::string SoftNic::open_with(int descriptor) {
  receiver_ = Socket(descriptor);
  return prepare();
}

std::string SoftNic::prepare() {
  prepare_receiver(receiver_, config_.address.v6, config_.offload);
  if (config_.draw_numbers) {
    std::string problem = numbers_.draw();
    if (!problem.empty()) return problem;
  }
  if (!config_.see_headers || config_.address.v6) return "";  // IPv6 has no identification
  std::string error = headers_.open(config_.address, config_.port, config_.local_rank);
  // The UDP socket keeps the port bound, so that the kernel answers no peer with "port unreachable".
  if (error.empty() && !silence(receiver_)) error = "cannot silence the UDP socket";
  return error;
}

std::uint32_t SoftNic::add_queue_pair(const roce::QueuePairConfig& config, bool receives_counted) {
  if (configs_.empty() || !(configs_.back() == config)) configs_.push_back(config);
  const auto id = static_cast<std::uint32_t>(connections_.size());
  Connection& connection = connections_.emplace_back(roce::QueuePair(configs_.back(), id, 0, 0));
  connection.config = &configs_.back();
  if (receives_counted) connection.receives = std::make_unique<ReceiveQueue>();
  return id;
}

std::string SoftNic::connect(std::uint32_t queue_pair, std::uint32_t first_psn, const Remote& remote) {
  Connection& connection = connections_[queue_pair];
  if (remote.address.v6 != config_.address.v6)
    return remote.address.text() + " is not of the same address family as " + config_.address.text();
  connection.queue_pair = roce::QueuePair(*connection.config, queue_pair, first_psn, remote.first_psn);
  connection.remote = remote;
  connection.remote.source_ports.resize(std::max<std::size_t>(connection.config->spray, 1));
  connection.outs.assign(connection.remote.source_ports.size(), {});
  connection.ins.clear();
  connection.connected = true;
  return "";
}

std::string SoftNic::post(std::uint32_t queue_pair, const roce::SendRequest& request) {
  assert(queue_pair < connections_.size());
  Connection& connection = connections_[queue_pair];
  if (!connection.connected) return "queue pair " + std::to_string(queue_pair) + " is not connected";
  if (!holds(request.local_address, request.size_bytes, memory_.size()))
    return std::to_string(request.size_bytes) + " bytes at " + std::to_string(request.local_address) +
           " lie outside of the memory of " + std::to_string(memory_.size()) + " bytes";
  Sink sink{*this, connection, now()};
  connection.queue_pair.post(request, sink);
  return "";
}

std::string SoftNic::post_receive(std::uint32_t queue_pair, const Receive& receive) {
  Connection& connection = connections_[queue_pair];
  if (!connection.receives)
    return "queue pair " + std::to_string(queue_pair) + " does not count its receives";
  if (!holds(receive.address, receive.size_bytes, memory_.size()))
    return std::to_string(receive.size_bytes) + " bytes at " + std::to_string(receive.address) +
           " lie outside of the memory of " + std::to_string(memory_.size()) + " bytes";
  const bool first = connection.receives->posted.empty();
  connection.receives->posted.push_back(receive);
  if (!first || !connection.connected) return "";
  Sink sink{*this, connection, now()};
  connection.queue_pair.receives_posted(sink);
  return "";
}

void SoftNic::fire_timers(TimePs now) {
  while (!timers_.empty() && timers_.top().at <= now) {
    const Timer timer = timers_.top();
    timers_.pop();
    Connection& connection = connections_[timer.queue_pair];
    Sink sink{*this, connection, now};
    connection.queue_pair.timer(now, sink);
  }
}

TimePs SoftNic::next_due() const {
  TimePs due = timers_.empty() ? kNever : timers_.top().at;
  if (!delayed_.empty()) due = std::min(due, delayed_.top().departure);
  return std::min(due, staged_ ? staged_->departure : port_.next_pick());
}

void SoftNic::sleep(TimePs now, TimePs until) {
  if (until <= now) return;
  ++counters_.sleeps;
  const TimePs wait_ns = (until - now) / kPsPerNs + ((until - now) % kPsPerNs != 0);
  timespec timeout{.tv_sec = wait_ns / 1'000'000'000, .tv_nsec = wait_ns % 1'000'000'000};
  pollfd poll{.fd = headers_.open() ? headers_.get() : receiver_.get(), .events = POLLIN, .revents = 0};
  ppoll(&poll, 1, &timeout, nullptr);
}

// Sockets for sending are opened when first used: idle queue pairs cost none.
bool SoftNic::open_sender(std::uint32_t id, std::uint32_t number) {
  Connection& connection = connections_[id];
  Out& out = connection.outs[number];
  std::uint16_t port = connection.remote.source_ports[number];
  const bool exact = connection.remote.exact_port;
  const auto known = std::find_if(senders_.begin(), senders_.end(),
                                  [&](const Sender& sender) { return exact && sender.port == port; });
  out.sender = static_cast<std::uint32_t>(known - senders_.begin());
  if (known == senders_.end()) {
    const bool ect = congestion::needs_marks(connection.config->congestion.control);
    const auto traffic_class = static_cast<std::uint8_t>((config_.traffic_class & 0xFC) | (ect ? kEct0 : 0));
    std::string error;
    Socket socket = live::open_sender(config_.address, port, exact, traffic_class, error);
    if (!socket.open()) {
      out.sender = kNoSender;
      if (!error_) error_ = SendError{id, error};
      return false;
    }
    senders_.push_back({port, std::move(socket)});
  }
  out.flow = icrc_flow(config_.address, port, connection.remote.address, config_.port);
  return true;
}

std::string SoftNic::open_path(std::uint32_t queue_pair) {
  for (std::uint32_t number = 0; number < connections_[queue_pair].outs.size(); ++number) {
    if (connections_[queue_pair].outs[number].sender == kNoSender && !open_sender(queue_pair, number))
      return error_->text;
  }
  return "";
}

void SoftNic::expect_ports(std::uint32_t queue_pair, const std::vector<std::uint16_t>& ports) {
  const bool any = std::find(ports.begin(), ports.end(), std::uint16_t{0}) != ports.end();
  connections_[queue_pair].remote.peer_ports = any ? std::vector<std::uint16_t>{} : ports;
}

std::vector<std::uint16_t> SoftNic::source_ports(std::uint32_t queue_pair) const {
  const Connection& connection = connections_[queue_pair];
  std::vector<std::uint16_t> ports = connection.remote.source_ports;
  for (std::size_t number = 0; number < connection.outs.size(); ++number) {
    const std::uint32_t sender = connection.outs[number].sender;
    if (sender != kNoSender) ports[number] = senders_[sender].port;
  }
  return ports;
}

std::vector<std::uint16_t> SoftNic::certain_ports(std::uint32_t queue_pair) const {
  const Connection& connection = connections_[queue_pair];
  std::vector<std::uint16_t> ports = source_ports(queue_pair);
  for (std::size_t number = 0; number < ports.size(); ++number) {
    const bool opened = number < connection.outs.size() && connection.outs[number].sender != kNoSender;
    if (!connection.connected || !(opened || connection.remote.exact_port)) ports[number] = 0;
  }
  return ports;
}

roce::QueuePairCounters SoftNic::totals() const {
  roce::QueuePairCounters sum;
  for (const Connection& connection : connections_) sum += connection.queue_pair.counters();
  return sum;
}

void SoftNic::set_path_faults(std::uint32_t queue_pair, LossPlan* loss, TimePs delay) {
  connections_[queue_pair].loss = loss;
  connections_[queue_pair].delay = delay;
}

}  // namespace genie::live
