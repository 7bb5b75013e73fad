#include "live/engine.hpp"

#include <poll.h>
#include <time.h>

#include <algorithm>

#include "live/engine_sink.hpp"

namespace genie::live {
namespace {

constexpr TimePs kTimerQuantum = 40 * kPsPerUs;  // least time between two wake-ups for sleeps

std::int64_t steady_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
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
    connection.loss = LossPlan(config_.rank, number);
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
    receive();
    TimePs time = 0;
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
                               sink);
  }
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
  } else {
    due = std::min(due, port_.next_pick());
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
