#include "live/engine.hpp"

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace genie::live {
namespace {

constexpr std::size_t kReceiveMessages = 16, kReceiveBytes = 65536;
constexpr std::size_t kBatchMax = 64;     // datagrams handed to the kernel at once
constexpr int kUnpacedQuantum = 15;       // packets of one queue pair in a row when nothing is paced
constexpr std::size_t kSegmentsMax = 60;  // of one offloaded send
constexpr std::size_t kSegmentBytesMax = 65000;
constexpr TimePs kTimerQuantum = 40 * kPsPerUs;  // least time between two wake-ups for sleeps
constexpr std::uint16_t kIdentificationsTried = 64;

std::int64_t steady_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::array<std::byte, 4> network_order(std::uint32_t ipv4) {
  std::array<std::byte, 4> bytes{};
  const std::uint32_t value = htonl(ipv4);
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

// A queue pair number: the local rank, from 1, in the high byte, the peer's rank below (section 9.2.5 has 24
// bits).
std::uint32_t qpn_of(std::int32_t local_rank, std::int32_t peer) {
  return (static_cast<std::uint32_t>(local_rank + 1) << 16) | static_cast<std::uint32_t>(peer & 0xFFFF);
}

// The pair's own source port, for ECMP entropy.
std::uint16_t first_source_port(std::int32_t rank, std::int32_t peer) {
  const std::uint32_t mixed =
      (static_cast<std::uint32_t>(rank) * 0x9E3779B1u) ^ (static_cast<std::uint32_t>(peer) * 0x85EBCA77u);
  return static_cast<std::uint16_t>(0xC000 | ((mixed >> 13) & 0x3FFF));
}

}  // namespace

// What a queue pair's effects do in the live world.
struct Engine::Sink {
  Engine& engine;
  Connection& connection;
  TimePs now;

  void ready(roce::QueuePair& queue_pair) {
    if (queue_pair.has_control()) engine.port_.mark_control(queue_pair.id(), now);
    if (queue_pair.has_data()) engine.port_.mark_data(queue_pair.id(), now);
  }
  void arm_timer(roce::QueuePair& queue_pair, TimePs at) {
    engine.timers_.push({at, TimerKind::kQueuePair, queue_pair.id()});
  }
  void sent(roce::QueuePair& queue_pair, std::uint64_t handle, roce::Status status,
            std::uint32_t retransmits) {
    if (status == roce::Status::kOk) {
      engine.completions_.push_back({.type = Completion::Type::kSent,
                                     .handle = handle,
                                     .time = now - engine.origin_,
                                     .retransmits = retransmits});
      return;
    }
    if (status == roce::Status::kFlushed || !engine.error_.empty()) return;
    const char* why = status == roce::Status::kRetryExceeded      ? "no acknowledgement after all retries"
                      : status == roce::Status::kRnrRetryExceeded ? "no receive posted after all retries"
                      : status == roce::Status::kRemoteAccess     ? "the peer refused access to its memory"
                      : status == roce::Status::kRemoteOperation  ? "the peer failed"
                                                                  : "the peer refused the request";
    char detail[160];
    std::snprintf(detail, sizeof detail,
                  " (queue pair 0x%06x, PSN %u, syndrome 0x%02x, %u retries of %.0f ms)",
                  connection.destination_qpn, queue_pair.unacked_psn(), queue_pair.last_syndrome(),
                  engine.config_.queue_pair.retry_limit,
                  static_cast<double>(engine.config_.queue_pair.ack_timeout) / 1e9);
    engine.error_ = "rank " + std::to_string(engine.config_.rank) + " gave up sending to rank " +
                    std::to_string(connection.rank) + ": " + why + detail;
  }
  bool may_write(roce::QueuePair&, std::uint32_t rkey, std::uint64_t address, std::uint32_t size_bytes) {
    return rkey == engine.config_.rkey && address <= engine.destination_.size() &&
           size_bytes <= engine.destination_.size() - address;
  }
  bool take_receive(roce::QueuePair&) { return true; }  // receives are posted again as they are used
  void place(roce::QueuePair&, const roce::Packet&, std::uint64_t address) {
    if (address + engine.payload_.size() > engine.destination_.size()) return;
    std::memcpy(engine.destination_.data() + address, engine.payload_.data(), engine.payload_.size());
  }
  void delivered(roce::QueuePair&, const roce::Delivery& delivery) {
    engine.completions_.push_back({.type = Completion::Type::kArrived,
                                   .peer = connection.rank,
                                   .tag = delivery.immediate,
                                   .size_bytes = delivery.size_bytes,
                                   .first = delivery.first - engine.origin_,
                                   .time = now - engine.origin_});
  }
};

Engine::Engine(const EngineConfig& config)
    : config_(config),
      epoch_ns_(steady_ns()),
      source_(config.memory_bytes),
      destination_(config.memory_bytes),
      port_(config.debt_limit),
      receive_buffer_(kReceiveMessages * kReceiveBytes) {
  for (std::size_t at = 0; at < source_.size(); ++at)
    source_[at] = static_cast<std::byte>((at * 7 + static_cast<std::size_t>(config.rank)) & 0xFF);
}

TimePs Engine::now() const { return (steady_ns() - epoch_ns_) * kPsPerNs; }

std::string Engine::open() {
  std::string error;
  if (config_.shared_port && config_.local_rank == 0) {
    // Another run's group must not be joined: the first rank makes sure that the port is free.
    Socket alone = open_receiver(config_.ipv4, config_.port, false, false, error);
    if (!alone.open()) return error;
  }
  receiver_ = open_receiver(config_.ipv4, config_.port, config_.shared_port, config_.offload, error);
  return error;
}

std::string Engine::connect(const std::vector<PeerAddress>& peers,
                            const std::vector<std::uint32_t>& first_psn) {
  std::string error;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const PeerAddress& peer = peers[rank];
    const auto number = static_cast<std::int32_t>(rank);
    Connection& connection = connections_.emplace_back(roce::QueuePair(
        config_.queue_pair, static_cast<std::uint32_t>(rank), first_psn[rank], peer.first_psn));
    connection.rank = number;
    connection.destination_qpn = qpn_of(peer.local_rank, config_.rank);
    connection.rkey = peer.rkey;
    connection.target = address_of(peer.ipv4, config_.port);
    if (number == config_.rank) continue;
    connection.source_port = first_source_port(config_.rank, number);
    connection.sender = open_sender(config_.ipv4, connection.source_port, error);
    if (!connection.sender.open()) return error;
    connection.out_flow = roce::IcrcFlow(roce::Ipv4Flow{.src = network_order(config_.ipv4),
                                                        .dst = network_order(peer.ipv4),
                                                        .src_port = connection.source_port,
                                                        .dst_port = config_.port});
  }
  return error;
}

void Engine::set_plan(const SharedPlan& shared, const RankPlan& plan) { walker_.emplace(shared, plan); }

RunState Engine::begin(TimePs origin) {
  walker_->reset();
  // Timers of a play that was given up are void.
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> kept;
  for (; !timers_.empty(); timers_.pop()) {
    if (timers_.top().kind != TimerKind::kWalker) kept.push(timers_.top());
  }
  timers_ = std::move(kept);
  walker_timers_ = 0;
  // What came since the last iteration has been timed against its origin.
  for (Completion& completion : completions_) {
    completion.time += origin_ - origin;
    completion.first += origin_ - origin;
  }
  origin_ = origin;
  if (now() < origin && serve(origin) == RunState::kFailed) return RunState::kFailed;
  operations_.clear();
  const TimePs start = now();
  walker_->begin(start - origin_, operations_);
  perform(start);
  last_progress_ = start;
  return walker_->done() ? RunState::kDone : RunState::kTimeout;
}

RunState Engine::run(TimePs deadline) { return loop(deadline, true); }

RunState Engine::serve(TimePs deadline) { return loop(deadline, false); }

RunState Engine::loop(TimePs deadline, bool playing) {
  while (true) {
    TimePs time = now();
    receive(time);
    do {
      time = now();
      fire_timers(time);
      if (playing) walk(time);
    } while (playing && !timers_.empty() && timers_.top().at <= time);
    transmit(now());
    if (!error_.empty()) return RunState::kFailed;
    if (playing && walker_->done()) return RunState::kDone;
    time = now();
    if (time >= deadline) return RunState::kTimeout;
    if (playing && stalled(time)) {
      error_ = waiting();
      return RunState::kFailed;
    }
    if (!config_.spin) sleep(time, std::min(deadline, next_due(time)));
  }
}

bool Engine::stalled(TimePs now) const {
  return walker_timers_ == 0 && now - last_progress_ > config_.stall_limit;
}

std::string Engine::waiting() const {
  std::string text;
  if (!walker_) return text;
  for (const std::string& line : walker_->waiting(4)) text += (text.empty() ? "" : "; ") + line;
  return text.empty() ? "rank " + std::to_string(config_.rank) + " waits for dependencies that never end"
                      : text;
}

// Takes what the socket has; true when there was something.
bool Engine::receive(TimePs now) {
  bool any = false;
  while (true) {
    mmsghdr messages[kReceiveMessages];
    iovec vectors[kReceiveMessages];
    sockaddr_in from[kReceiveMessages];
    alignas(cmsghdr) char control[kReceiveMessages][CMSG_SPACE(sizeof(int))];
    for (std::size_t at = 0; at < kReceiveMessages; ++at) {
      vectors[at] = {receive_buffer_.data() + at * kReceiveBytes, kReceiveBytes};
      messages[at] = {};
      messages[at].msg_hdr.msg_name = &from[at];
      messages[at].msg_hdr.msg_namelen = sizeof from[at];
      messages[at].msg_hdr.msg_iov = &vectors[at];
      messages[at].msg_hdr.msg_iovlen = 1;
      messages[at].msg_hdr.msg_control = control[at];
      messages[at].msg_hdr.msg_controllen = sizeof control[at];
    }
    const int count = recvmmsg(receiver_.get(), messages, kReceiveMessages, MSG_DONTWAIT, nullptr);
    ++counters_.receive_calls;
    if (count <= 0) return any;
    any = true;
    last_progress_ = now;
    for (int at = 0; at < count; ++at) {
      std::size_t size = messages[at].msg_len, segment = size;
      for (cmsghdr* item = CMSG_FIRSTHDR(&messages[at].msg_hdr); item != nullptr;
           item = CMSG_NXTHDR(&messages[at].msg_hdr, item)) {
        if (item->cmsg_level == SOL_UDP && item->cmsg_type == UDP_GRO) {
          int value = 0;
          std::memcpy(&value, CMSG_DATA(item), sizeof value);
          segment = static_cast<std::size_t>(value);
        }
      }
      const std::byte* data = receive_buffer_.data() + static_cast<std::size_t>(at) * kReceiveBytes;
      std::uint16_t index = 0;
      for (std::size_t offset = 0; offset < size && segment > 0; offset += segment, ++index)
        datagram({data + offset, std::min(segment, size - offset)}, from[at], index, now);
    }
    if (count < static_cast<int>(kReceiveMessages)) return any;
  }
}

void Engine::datagram(std::span<const std::byte> bytes, const sockaddr_in& from, std::uint16_t index,
                      TimePs now) {
  ++counters_.datagrams_received;
  counters_.bytes_received += bytes.size();
  roce::PacketHeader header;
  std::span<const std::byte> payload;
  if (roce::decode(bytes, header, payload) != roce::DecodeError::kNone) {
    ++counters_.malformed;
    return;
  }
  const std::uint32_t peer = header.dest_qpn & 0xFFFF;
  if (header.dest_qpn >> 16 != static_cast<std::uint32_t>(config_.local_rank + 1)) {
    ++counters_.wrong_rank;
    return;
  }
  if (peer >= connections_.size() || peer == static_cast<std::uint32_t>(config_.rank) ||
      connections_[peer].target.sin_addr.s_addr != from.sin_addr.s_addr) {
    ++counters_.strangers;
    return;
  }
  Connection& connection = connections_[peer];
  if (!icrc_right(connection, bytes, ntohs(from.sin_port), index)) {
    ++counters_.bad_icrc;
    return;
  }
  roce::Packet packet;
  packet.opcode = header.opcode;
  packet.ack_request = header.ack_request;
  packet.syndrome = header.aeth.syndrome;
  packet.msn = header.aeth.msn;
  packet.psn = header.psn;
  packet.payload_bytes = header.payload_bytes;
  packet.immediate = header.imm;
  packet.rkey = header.reth.rkey;
  packet.message_bytes = header.reth.length_bytes;
  packet.remote_address = header.reth.va;
  payload_ = payload;
  Sink sink{*this, connection, now};
  connection.queue_pair.receive(packet, now, sink);
}

// A plain socket does not show the IP identification. Ours is 0, or the segment's number in an offloaded
// send.
bool Engine::icrc_right(Connection& connection, std::span<const std::byte> bytes, std::uint16_t from_port,
                        std::uint16_t index) const {
  if (connection.in_flow_port != from_port) {
    std::array<std::byte, 4> peer{};
    std::memcpy(peer.data(), &connection.target.sin_addr.s_addr, 4);
    connection.in_flow = roce::IcrcFlow(roce::Ipv4Flow{
        .src = peer, .dst = network_order(config_.ipv4), .src_port = from_port, .dst_port = config_.port});
    connection.in_flow_port = from_port;
  }
  const std::span<const std::byte> covered = bytes.first(bytes.size() - roce::kIcrcBytes);
  const std::uint32_t carried = roce::load_icrc(bytes.data() + covered.size());
  if (connection.in_flow.icrc_of(covered, index) == carried) return true;
  for (std::uint16_t identification = 0; identification < kIdentificationsTried; ++identification) {
    if (identification != index && connection.in_flow.icrc_of(covered, identification) == carried)
      return true;
  }
  return false;
}

void Engine::fire_timers(TimePs now) {
  while (!timers_.empty() && timers_.top().at <= now) {
    const Timer timer = timers_.top();
    timers_.pop();
    last_timer_ = now;
    if (timer.kind == TimerKind::kWalker) {
      --walker_timers_;
      last_progress_ = now;
      completions_.push_back(
          {.type = Completion::Type::kTimer, .handle = timer.data, .time = timer.at - origin_});
      continue;
    }
    Connection& connection = connections_[timer.data];
    Sink sink{*this, connection, now};
    connection.queue_pair.timer(now, sink);
  }
}

void Engine::walk(TimePs now) {
  if (completions_.empty()) return;
  operations_.clear();
  walker_->advance(now - origin_, completions_, operations_);
  completions_.clear();
  if (!walker_->error().empty()) error_ = walker_->error();
  perform(now);
}

void Engine::perform(TimePs now) {
  for (const Operation& operation : operations_) {
    if (operation.type == Operation::Type::kTimer) {
      timers_.push({operation.at + origin_, TimerKind::kWalker, operation.handle});
      ++walker_timers_;
      continue;
    }
    Connection& connection = connections_[static_cast<std::size_t>(operation.peer)];
    Sink sink{*this, connection, now};
    connection.queue_pair.post({.verb = roce::Verb::kWriteImm,
                                .handle = operation.handle,
                                .size_bytes = static_cast<std::uint32_t>(operation.size_bytes),
                                .immediate = operation.tag,
                                .rkey = connection.rkey},
                               now, sink);
  }
}

std::int64_t Engine::rate_at(TimePs now) const {
  double rate = static_cast<double>(config_.rate_bps);
  for (const RateFault& fault : rate_faults_) {
    if (now >= fault.from && now < fault.until) rate *= fault.factor;
  }
  return static_cast<std::int64_t>(rate);
}

// Takes the next packet into the serialiser; false when there is none.
bool Engine::stage(TimePs now) {
  roce::NicPort::Pick pick;
  while (port_.pick(pick)) {
    Connection& connection = connections_[pick.id];
    Sink sink{*this, connection, now};
    roce::Packet packet;
    const bool taken = pick.control ? connection.queue_pair.take_control(packet)
                                    : connection.queue_pair.take_data(now, packet, sink);
    if (!taken) continue;
    const std::uint32_t wire =
        roce::wire_bytes(packet.opcode, packet.payload_bytes, config_.frame_overhead_bytes);
    const TimePs departure = port_.depart(now, serialisation_ps(wire, rate_at(now)));
    staged_.emplace();
    build(packet, pick.id, departure, *staged_);
    bool lost = false;
    if (!pick.control) {
      if (connection.queue_pair.has_data()) {
        // Unpaced, one queue pair keeps its turn for as much as one offloaded send takes.
        const bool keep = config_.rate_bps == 0 && ++turn_ < kUnpacedQuantum;
        if (!keep) turn_ = 0;
        port_.mark_more(pick.id, keep);
      } else {
        turn_ = 0;
      }
      lost = connection.loss.lose_next();
    }
    if (keep_trace_) trace_.push_back({departure, connection.rank, packet, lost});
    if (lost) {
      ++counters_.injected_losses;
      staged_->payload = nullptr;
      staged_->header_bytes = 0;  // takes its time on the line and goes nowhere
    }
    return true;
  }
  return false;
}

void Engine::build(const roce::Packet& packet, std::uint32_t connection, TimePs departure,
                   Datagram& out) const {
  roce::PacketHeader& header = out.fields;
  header.opcode = packet.opcode;
  header.ack_request = packet.ack_request;
  header.dest_qpn = connections_[connection].destination_qpn;
  header.psn = packet.psn;
  header.payload_bytes = packet.payload_bytes;
  header.reth = {.va = packet.remote_address, .rkey = packet.rkey, .length_bytes = packet.message_bytes};
  header.aeth = {.syndrome = packet.syndrome, .msn = packet.msn};
  header.imm = packet.immediate;
  out.departure = departure;
  out.connection = connection;
  out.header_bytes = static_cast<std::uint32_t>(roce::encode_headers(header, out.header));
  out.payload_bytes = packet.payload_bytes;
  out.payload = source_.data() + packet.local_address;
}

void Engine::transmit(TimePs now) {
  const bool paced = config_.rate_bps != 0;
  while (batch_.size() < kBatchMax) {
    if (!staged_ && !stage(now)) break;
    if (paced && staged_->departure > now) break;
    counters_.latest_departure = std::max(counters_.latest_departure, paced ? now - staged_->departure : 0);
    const TimePs delay = connections_[staged_->connection].delay;
    if (staged_->header_bytes == 0) {
      // lost
    } else if (delay == 0) {
      batch_.push_back(std::move(*staged_));
    } else {
      staged_->departure += delay;
      delayed_.push(std::move(*staged_));
    }
    staged_.reset();
  }
  while (!delayed_.empty() && delayed_.top().departure <= now) {
    batch_.push_back(delayed_.top());
    delayed_.pop();
  }
  flush();
}

void Engine::flush() {
  for (std::size_t at = 0; at < batch_.size();) at += send_run(at);
  batch_.clear();
}

// Sends datagram `first`, and with it those after it that fit the same offloaded send; returns how many.
std::size_t Engine::send_run(std::size_t first) {
  const Datagram& head = batch_[first];
  const Connection& connection = connections_[head.connection];
  const auto size_of = [](const Datagram& d) {
    return std::size_t{d.header_bytes} + d.payload_bytes + roce::pad_bytes(d.payload_bytes) +
           roce::kIcrcBytes;
  };
  const std::size_t segment = size_of(head);
  std::size_t count = 1, total = segment;
  while (config_.offload && first + count < batch_.size() && count < kSegmentsMax) {
    const Datagram& next = batch_[first + count];
    const std::size_t size = size_of(next);
    if (next.connection != head.connection || size > segment || total + size > kSegmentBytesMax) break;
    total += size;
    ++count;
    if (size < segment) break;  // a shorter segment can only be the last
  }
  iovec vectors[kSegmentsMax * 3];
  std::byte trailers[kSegmentsMax][8];
  std::size_t used = 0;
  for (std::size_t at = 0; at < count; ++at) {
    Datagram& datagram = batch_[first + at];
    const std::uint32_t pad = roce::pad_bytes(datagram.payload_bytes);
    const std::uint32_t icrc =
        connection.out_flow.icrc({datagram.header.data(), datagram.header_bytes},
                                 {datagram.payload, datagram.payload_bytes}, static_cast<std::uint16_t>(at));
    std::memset(trailers[at], 0, pad);
    roce::store_icrc(icrc, trailers[at] + pad);
    vectors[used++] = {datagram.header.data(), datagram.header_bytes};
    if (datagram.payload_bytes > 0)
      vectors[used++] = {const_cast<std::byte*>(datagram.payload), datagram.payload_bytes};
    vectors[used++] = {trailers[at], pad + roce::kIcrcBytes};
  }
  msghdr message{};
  message.msg_name = const_cast<sockaddr_in*>(&connection.target);
  message.msg_namelen = sizeof connection.target;
  message.msg_iov = vectors;
  message.msg_iovlen = used;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(std::uint16_t))] = {};
  if (count > 1) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_UDP;
    item->cmsg_type = UDP_SEGMENT;
    item->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const auto value = static_cast<std::uint16_t>(segment);
    std::memcpy(CMSG_DATA(item), &value, sizeof value);
  }
  // A send that the kernel refuses is a lost packet: the connection sends it again.
  const ssize_t sent = sendmsg(connection.sender.get(), &message, MSG_NOSIGNAL);
  ++counters_.send_calls;
  if (sent >= 0) {
    counters_.datagrams_sent += count;
    counters_.bytes_sent += total;
  } else if (errno != ENOBUFS && errno != EAGAIN && errno != ECONNREFUSED && errno != EINTR &&
             error_.empty()) {
    error_ = "rank " + std::to_string(config_.rank) + " cannot send to rank " +
             std::to_string(connection.rank) + " at " + text_of(ntohl(connection.target.sin_addr.s_addr)) +
             ": " + std::strerror(errno);
  }
  return count;
}

TimePs Engine::next_due(TimePs now) const {
  TimePs due = last_progress_ + config_.stall_limit + kPsPerUs;
  if (due <= now) due = now + config_.stall_limit;
  // Chains of short sleeps are taken several at a time: each wake-up costs CPU that packets need, and sleeps
  // follow one another from when they were due.
  if (!timers_.empty()) due = std::min(due, std::max(timers_.top().at, last_timer_ + kTimerQuantum));
  if (!delayed_.empty()) due = std::min(due, delayed_.top().departure);
  if (staged_) {
    due = std::min(due, staged_->departure);
  } else if (!port_.idle()) {
    due = now;
  }
  return due;
}

void Engine::sleep(TimePs now, TimePs until) {
  if (until <= now) return;
  ++counters_.sleeps;
  const TimePs wait_ns = (until - now + kPsPerNs - 1) / kPsPerNs;
  timespec timeout{.tv_sec = wait_ns / 1'000'000'000, .tv_nsec = wait_ns % 1'000'000'000};
  pollfd poll{.fd = receiver_.get(), .events = POLLIN, .revents = 0};
  ppoll(&poll, 1, &timeout, nullptr);
}

void Engine::delay_path(std::int32_t peer, TimePs delay) {
  connections_[static_cast<std::size_t>(peer)].delay = delay;
}

LossPlan& Engine::loss(std::int32_t peer) { return connections_[static_cast<std::size_t>(peer)].loss; }

roce::QueuePairCounters Engine::totals() const {
  roce::QueuePairCounters sum;
  for (const Connection& connection : connections_) sum += connection.queue_pair.counters();
  return sum;
}

std::uint16_t Engine::source_port(std::int32_t peer) const {
  return connections_[static_cast<std::size_t>(peer)].source_port;
}

}  // namespace genie::live
