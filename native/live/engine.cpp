#include "live/engine.hpp"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "live/verify_pattern.hpp"

namespace genie::live {
namespace {

constexpr TimePs kTimerQuantum = 40 * kPsPerUs;  // least time between two wake-ups for sleeps
constexpr std::size_t kEagerSockets = 256;  // opened before the run, where a socket for each is not too many

// Bits of an address in the memory. Above these bits the WRITEs of a sprayed run have the number of their
// message. The packets of a message may come before those of the message before. The engine checks them as
// they come.
constexpr std::uint32_t kPlaceBits = 32;
// Of a rank's FIFO, beside its memory's.
std::uint32_t fifo_rkey_of(std::uint32_t rkey) { return rkey == 0xFFFFFFFFu ? 1 : rkey + 1; }

NicConfig nic_of(const EngineConfig& config) {
  NicConfig nic = config.nic;
  // Messages come to the front of the memory and go from behind it; any start within the pattern will do.
  nic.writable_bytes = config.message_max_bytes;
  nic.readable_bytes = 0;
  nic.fifo_rkey = fifo_rkey_of(config.nic.rkey);
  nic.memory_bytes = 2 * config.message_max_bytes + kPatternBytes;
  if (config.queue_pair.spray > 1) nic.address_bits = kPlaceBits;
  return nic;
}

}  // namespace

Engine::Engine(const EngineConfig& config) : config_(config), nic_(nic_of(config), *this) {
  fill_pattern(nic_.memory().subspan(config.message_max_bytes));
}

std::string Engine::connect(const std::vector<Peer>& peers) {
  const std::uint32_t each = config_.spread.queue_pairs, sprayed = config_.queue_pair.spray;
  if (peers.size() * each > 0x10000)
    return std::to_string(peers.size()) + " ranks with " + std::to_string(each) +
           " queue pairs each are more than a queue pair number can tell apart (65,536)";
  // Queue pair k of a connection to rank r has the number k * ranks + r.
  roce::QueuePairConfig config = config_.queue_pair;
  for (std::uint32_t at = 0; at < each; ++at) {
    for (const Peer& peer : peers) {
      config.peer_window_packets = peer.window_packets;
      nic_.add_queue_pair(config, false);
    }
  }
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const Peer& peer = peers[rank];
    const auto number = static_cast<std::int32_t>(rank);
    Link& link = links_.emplace_back(config_.spread, !peer.foreign);
    link.loss = LossPlan(config_.rank, number);
    link.rkey = peer.rkey;
    link.memory_address = peer.memory_address;
    link.places = peer.places;
    link.slot_bytes = peer.slot_bytes;
    link.slots = peer.slots;
    link.posted.resize(each);
    link.delivered.resize(each);
    if (number == config_.rank) continue;
    if (peer.source_ports.size() != each * sprayed)
      return "sends to rank " + std::to_string(rank) + " from " + std::to_string(each * sprayed) +
             " source ports, and was given " + std::to_string(peer.source_ports.size());
    for (std::uint32_t at = 0; at < each; ++at) {
      const auto id = static_cast<std::uint32_t>(at * peers.size() + rank);
      const auto first_port = peer.source_ports.begin() + static_cast<std::ptrdiff_t>(at * sprayed);
      const Remote remote{.address = peer.address,
                          .qpn = peer.qpns.at(at),
                          .first_psn = peer.first_psns.at(at),
                          .source_ports = {first_port, first_port + static_cast<std::ptrdiff_t>(sprayed)},
                          .exact_port = peer.exact_ports,
                          .foreign = peer.foreign};
      std::string error = nic_.connect(id, peer.our_first_psns.at(at), remote);
      if (error.empty() && peers.size() * each * sprayed <= kEagerSockets) error = nic_.open_path(id);
      if (!error.empty()) return error;
      nic_.set_path_faults(id, &link.loss, 0);
    }
  }
  return "";
}

std::int32_t Engine::rank_of(std::uint32_t queue_pair) const {
  return static_cast<std::int32_t>(queue_pair % links_.size());
}

std::string Engine::cannot_send(std::int32_t peer, const std::string& problem) const {
  return "rank " + std::to_string(config_.rank) + " cannot send to rank " + std::to_string(peer) + problem;
}

std::uint32_t Engine::spread_index(std::uint32_t queue_pair) const {
  return queue_pair / static_cast<std::uint32_t>(links_.size());
}

void Engine::set_plan(const SharedPlan& shared, const RankPlan& plan) { walker_.emplace(shared, plan); }

RunState Engine::begin(TimePs origin) {
  walker_->reset();
  timers_ = {};  // those of a play that was given up are void
  // Completions since the last iteration have times relative to its origin.
  for (Completion& completion : completions_) {
    completion.time += origin_ - origin;
    completion.first += origin_ - origin;
  }
  origin_ = origin;
  if (now() < origin && serve(origin) == RunState::kFailed) return RunState::kFailed;
  operations_.clear();
  const TimePs start = now();
  walker_->begin(start - origin_, operations_);
  perform();
  last_progress_ = start;
  return walker_->done() ? RunState::kDone : RunState::kTimeout;
}

RunState Engine::run(TimePs deadline) { return loop(deadline, true); }

RunState Engine::serve(TimePs deadline) { return loop(deadline, false); }

RunState Engine::loop(TimePs deadline, bool playing) {
  while (true) {
    nic_.receive();
    TimePs time = 0;
    do {
      time = now();
      fire_timers(time);
      if (playing) walk(time);
    } while (playing && !timers_.empty() && timers_.top().at <= time);
    nic_.transmit(now());
    look_for_errors();
    if (!error_.empty()) return RunState::kFailed;
    // Not before the last acknowledgement is out: peers wait for it, and the caller does other things first.
    if (playing && walker_->done() && !nic_.sending()) return RunState::kDone;
    time = now();
    if (time >= deadline) return RunState::kTimeout;
    if (playing && stalled(time)) {
      error_ = waiting();
      failure_ = Failure::kStalled;
      return RunState::kFailed;
    }
    if (!config_.spin) nic_.sleep(time, std::min(deadline, next_due(time)));
  }
}

bool Engine::stalled(TimePs now) const {
  return timers_.empty() && now - std::max(last_progress_, nic_.last_progress()) > config_.stall_limit;
}

std::string Engine::waiting() const {
  std::string text;
  if (!walker_) return text;
  for (const std::string& line : walker_->waiting(4)) text += (text.empty() ? "" : "; ") + line;
  return text.empty() ? "rank " + std::to_string(config_.rank) + " waits for dependencies that never end"
                      : text;
}

void Engine::fire_timers(TimePs now) {
  while (!timers_.empty() && timers_.top().at <= now) {
    const Timer timer = timers_.top();
    timers_.pop();
    last_timer_ = last_progress_ = now;
    completions_.push_back(
        {.type = Completion::Type::kTimer, .handle = timer.handle, .time = timer.at - origin_});
  }
  nic_.fire_timers(now);
}

void Engine::walk(TimePs now) {
  if (completions_.empty()) return;
  operations_.clear();
  walker_->advance(now - origin_, completions_, operations_);
  completions_.clear();
  if (!walker_->error().empty()) error_ = walker_->error();
  perform();
}

void Engine::perform() {
  for (const Operation& operation : operations_) {
    if (operation.type == Operation::Type::kTimer) {
      timers_.push({operation.at + origin_, operation.handle});
    } else {
      send(operation);
    }
  }
}

// A part with its place in our memory and in the peer's.
roce::SendRequest Engine::request_of(Link& link, std::int32_t peer,
                                     const roce::Connection::Part& part) const {
  roce::SendRequest request = part.request();
  request.local_address = config_.message_max_bytes;
  request.rkey = part.is_credit ? fifo_rkey_of(link.rkey) : link.rkey;
  if (part.is_credit) return request;
  assert(part.queue_pair < link.posted.size() && part.size_bytes <= config_.message_max_bytes);
  const std::uint32_t at = part.queue_pair, message = link.posted[at]++;
  if (config_.verify) request.local_address += pattern_phase(config_.rank, peer, at, message);
  if (link.slots == 0) {
    request.local_address += part.offset;
    request.remote_address = link.memory_address + part.offset;
  } else {  // a part in a slot is there as if it were a message
    request.remote_address = link.places[at] + message % link.slots * link.slot_bytes;
  }
  if (is_sprayed()) request.remote_address |= std::uint64_t{message} << kPlaceBits;
  return request;
}

void Engine::send(const Operation& operation) {
  assert(operation.peer != config_.rank && static_cast<std::size_t>(operation.peer) < links_.size());
  Link& link = links_[static_cast<std::size_t>(operation.peer)];
  link.connection.send(operation.handle, operation.tag, static_cast<std::uint64_t>(operation.size_bytes),
                       [&](const roce::Connection::Part& part) {
                         const auto id = static_cast<std::uint32_t>(part.queue_pair * links_.size() +
                                                                    static_cast<std::size_t>(operation.peer));
                         const std::string problem = nic_.post(id, request_of(link, operation.peer, part));
                         if (!problem.empty() && error_.empty())
                           error_ = cannot_send(operation.peer, ": " + problem);
                       });
}

void Engine::sent(std::uint32_t queue_pair, std::uint64_t handle, roce::Status status,
                  std::uint32_t retransmits, TimePs now) {
  if (status == roce::Status::kOk) {
    Link& link = links_[static_cast<std::size_t>(rank_of(queue_pair))];
    const roce::Connection::Sent over = link.connection.sent(handle, retransmits);
    if (!over.whole) return;
    completions_.push_back({.type = Completion::Type::kSent,
                            .handle = over.handle,
                            .time = now - origin_,
                            .retransmits = over.retransmits});
    return;
  }
  if (status == roce::Status::kFlushed || !error_.empty()) return;
  const roce::QueuePair& pair = nic_.queue_pair(queue_pair);
  char detail[160];
  std::snprintf(detail, sizeof detail,
                " (queue pair 0x%06x, PSN %u, syndrome 0x%02x, %u retries, the first after %.0f ms)",
                nic_.remote(queue_pair).qpn, pair.unacked_psn(), pair.last_syndrome(),
                config_.queue_pair.retry_limit, static_cast<double>(config_.queue_pair.ack_timeout) / 1e9);
  error_ = "rank " + std::to_string(config_.rank) + " gave up sending to rank " +
           std::to_string(rank_of(queue_pair)) + ": " + roce::describe(status) + detail;
  if (status == roce::Status::kInvalidRequest || status == roce::Status::kRemoteAccess)
    failure_ = Failure::kRefused;
  const std::string sender = nic_.sender_of_packet();
  if (!sender.empty()) error_ += "; a packet from " + sender + " says so";
  if (!nic_.last_refusal().empty()) error_ += "; the system refused to send: " + nic_.last_refusal();
}

void Engine::delivered(std::uint32_t queue_pair, const roce::Delivery& delivery, const Receive*, TimePs now) {
  Link& link = links_[static_cast<std::size_t>(rank_of(queue_pair))];
  const std::uint32_t at = spread_index(queue_pair);
  if (!roce::Connection::is_clear_to_send(delivery)) {
    // A message that was checked as another has been checked for nothing.
    if (config_.verify && is_sprayed() && delivery.remote_address >> kPlaceBits != link.delivered[at])
      counters_.wrong_bytes += delivery.size_bytes;
    ++link.delivered[at];
  }
  link.connection.delivered(at, delivery, now, [&](const roce::Connection::Arrival& message) {
    completions_.push_back({.type = Completion::Type::kArrived,
                            .peer = rank_of(queue_pair),
                            .tag = message.tag,
                            .size_bytes = static_cast<std::int64_t>(message.size_bytes),
                            .first = message.first - origin_,
                            .time = message.time - origin_});
  });
}

// Compares the bytes in memory with those of the sender's pattern at the same place of the same message.
void Engine::placed(std::uint32_t queue_pair, std::uint64_t address, std::span<const std::byte> bytes) {
  if (!config_.verify) return;
  const std::int32_t peer = rank_of(queue_pair);
  const std::uint32_t at = spread_index(queue_pair);
  const std::uint32_t message = is_sprayed() ? static_cast<std::uint32_t>(address >> kPlaceBits)
                                             : links_[static_cast<std::size_t>(peer)].delivered[at];
  const std::uint64_t place = address & ((std::uint64_t{1} << kPlaceBits) - 1);
  const std::span<const std::byte> memory = nic_.memory();
  const std::size_t begin =
      config_.message_max_bytes + pattern_phase(peer, config_.rank, at, message) + place;
  assert(begin + bytes.size() <= memory.size());
  const auto expected = memory.subspan(begin, bytes.size());
  const auto found = memory.subspan(place, bytes.size());
  counters_.verified_bytes += bytes.size();
  if (std::memcmp(expected.data(), found.data(), bytes.size()) == 0) return;
  for (std::size_t byte = 0; byte < bytes.size(); ++byte)
    counters_.wrong_bytes += expected[byte] != found[byte];
}

TimePs Engine::next_due(TimePs now) const {
  TimePs due = std::max(last_progress_, nic_.last_progress()) + config_.stall_limit + kPsPerUs;
  if (due <= now) due = now + config_.stall_limit;
  due = std::min(due, nic_.next_due());
  // The engine takes chains of short sleeps several at a time. Each wake-up costs CPU that packets need.
  // Sleeps follow one another from when they were due.
  if (!timers_.empty()) due = std::min(due, std::max(timers_.top().at, last_timer_ + kTimerQuantum));
  return due;
}

void Engine::look_for_errors() {
  // Not before the peer has been told.
  if (const auto& ended = nic_.ended();
      ended && error_.empty() && !nic_.queue_pair(ended->queue_pair).has_control()) {
    failure_ = Failure::kEnded;
    error_ = "rank " + std::to_string(config_.rank) + " ended its connection with rank " +
             std::to_string(rank_of(ended->queue_pair)) + ": " + ended->text + "; if rank " +
             std::to_string(rank_of(ended->queue_pair)) + " did not send it, something forges its packets";
  }
  if (!nic_.error() || !error_.empty()) return;
  const SoftNic::SendError& failed = *nic_.error();
  error_ = cannot_send(rank_of(failed.queue_pair),
                       " at " + nic_.remote(failed.queue_pair).address.text() + ": " + failed.text);
}

void Engine::delay_path(std::int32_t peer, TimePs delay) {
  for (std::size_t id = static_cast<std::size_t>(peer); id < nic_.queue_pairs(); id += links_.size())
    nic_.set_path_faults(static_cast<std::uint32_t>(id), &links_[static_cast<std::size_t>(peer)].loss, delay);
}

std::vector<std::uint16_t> Engine::source_ports(std::int32_t peer) const {
  std::vector<std::uint16_t> ports;
  for (std::size_t id = static_cast<std::size_t>(peer); id < nic_.queue_pairs(); id += links_.size())
    std::ranges::copy(nic_.source_ports(static_cast<std::uint32_t>(id)), std::back_inserter(ports));
  return ports;
}

std::vector<std::uint16_t> Engine::certain_ports(std::int32_t peer) const {
  std::vector<std::uint16_t> ports;
  for (std::size_t id = static_cast<std::size_t>(peer); id < nic_.queue_pairs(); id += links_.size())
    std::ranges::copy(nic_.certain_ports(static_cast<std::uint32_t>(id)), std::back_inserter(ports));
  return ports;
}

void Engine::expect_ports(std::int32_t peer, const std::vector<std::uint16_t>& ports) {
  const std::size_t each = config_.queue_pair.spray;
  for (std::size_t at = 0; (at + 1) * each <= ports.size(); ++at) {
    const std::size_t id = at * links_.size() + static_cast<std::size_t>(peer);
    const auto first = ports.begin() + static_cast<std::ptrdiff_t>(at * each);
    if (id < nic_.queue_pairs())
      nic_.expect_ports(static_cast<std::uint32_t>(id), {first, first + static_cast<std::ptrdiff_t>(each)});
  }
}

}  // namespace genie::live
