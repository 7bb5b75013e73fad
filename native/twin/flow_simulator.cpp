#include "twin/flow_simulator.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/mix.hpp"
#include "twin/frames.hpp"
#include "twin/ways.hpp"
#include "walker/parts.hpp"

namespace genie::twin {
namespace {

constexpr double kBitsPerByte = 8;

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

double bytes_per_ps(std::int64_t rate_bps) {
  return rate_bps == 0 ? FlowSharing::kUnlimited
                       : static_cast<double>(rate_bps) / (kBitsPerByte * static_cast<double>(kPsPerSecond));
}

// Of the network's links, then of one from each host to itself, as fast as its port.
std::vector<std::int64_t> link_rates(const Network& network) {
  std::vector<std::int64_t> rates = network.link_rate_bps;
  rates.resize(rates.size() + index(network.hosts), 0);
  for (std::size_t link = 0; link < network.link_source.size(); ++link) {
    if (network.link_source[link] < network.hosts)
      rates[network.link_source.size() + index(network.link_source[link])] = network.link_rate_bps[link];
  }
  return rates;
}

std::vector<double> capacities(const std::vector<std::int64_t>& rates) {
  std::vector<double> all;
  for (const std::int64_t rate : rates) all.push_back(bytes_per_ps(rate));
  return all;
}

}  // namespace

FlowSimulator::FlowSimulator(const Network& network, const FlowConfig& config, const SharedPlan& shared,
                             std::vector<const RankPlan*> plans, std::vector<std::int32_t> host_of_rank,
                             std::uint64_t seed)
    : network_(&network),
      config_(config),
      host_of_rank_(std::move(host_of_rank)),
      seed_(seed),
      sharing_(capacities(link_rates(network)), config.rule),
      circuits_(config.circuits, network.hosts),
      routes_(&network.routes.front()),
      rate_bps_(link_rates(network)) {
  walkers_.reserve(plans.size());
  for (const RankPlan* plan : plans) walkers_.emplace_back(shared, *plan);
  ready_.resize(plans.size());
  use_.resize(rate_bps_.size());
}

void FlowSimulator::connect_all() {
  const std::vector<std::uint64_t> pairs = connected_pairs(walkers_);
  const std::uint32_t each = config_.spread.queue_pairs;
  for (std::uint32_t at = 0; at < pairs.size(); ++at) first_of_[pairs[at]] = at * each;
  queue_pairs_.resize(pairs.size() * each);
  for (const std::uint64_t pair : pairs) {
    const auto rank = static_cast<std::uint32_t>(pair >> 32), peer = static_cast<std::uint32_t>(pair);
    const std::uint32_t first = *first_of_.find(pair), back = *first_of_.find(pair_key(peer, rank));
    if (each > 1 || spreads_.empty()) spreads_.emplace_back(config_.spread);
    for (std::uint32_t number = 0; number < each; ++number) {
      QueuePair& own = queue_pairs_[first + number];
      own.rank = static_cast<std::int32_t>(rank);
      own.peer_rank = static_cast<std::int32_t>(peer);
      own.peer = back + number;
      own.number = number;
      own.spread = static_cast<std::uint32_t>(spreads_.size()) - 1;
      own.port = source_port(network_->source_ports, seed_, each,
                             {own.rank, own.peer_rank, first + number, own.peer, number});
      if (circuits_.used()) own.circuit = circuits_.of(host_of(own.rank), host_of(own.peer_rank));
      while (circuits_.used() && circuit_uses_.size() <= own.circuit) {
        const double rate = bytes_per_ps(config_.circuits.rate_bps);
        circuit_uses_.push_back({.links = {sharing_.add_link(rate), sharing_.add_link(rate)}, .waiting = {}});
      }
      find_path(*network_, *routes_, host_of(own.rank), host_of(own.peer_rank), own.port, own.path);
    }
  }
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id) {
    sharing_.add({});
    set_way(id);
  }
}

TimePs FlowSimulator::serialisation(std::uint32_t link, std::uint32_t size_bytes) const {
  return rate_bps_[link] <= 0 ? 0 : serialisation_ps(size_bytes, rate_bps_[link]);
}

std::uint64_t FlowSimulator::packets(std::uint64_t size_bytes) const {
  return std::max<std::uint64_t>(1, (size_bytes + config_.mtu_bytes - 1) / config_.mtu_bytes);
}

// Of a WRITE with immediate data: headers of the first, middle and last packets, and the padding of the last.
std::int64_t FlowSimulator::wire_bytes(std::uint64_t size_bytes) const {
  using roce::Opcode;
  const std::uint64_t count = packets(size_bytes), padded = (size_bytes + 3) & ~std::uint64_t{3};
  if (count == 1)
    return static_cast<std::int64_t>(padded + frame_header_bytes(*network_, Opcode::kWriteOnlyImm));
  return static_cast<std::int64_t>(padded + frame_header_bytes(*network_, Opcode::kWriteFirst) +
                                   (count - 2) * frame_header_bytes(*network_, Opcode::kWriteMiddle) +
                                   frame_header_bytes(*network_, Opcode::kWriteLastImm));
}

// Latencies and the flow of a queue pair whose path is known.
void FlowSimulator::set_way(std::uint32_t id) {
  QueuePair& own = queue_pairs_[id];
  const std::vector<std::uint32_t>& back = queue_pairs_[own.peer].path;
  const std::uint32_t full =
      config_.mtu_bytes + frame_header_bytes(*network_, roce::Opcode::kWriteMiddle);
  const std::uint32_t credit =
      static_cast<std::uint32_t>(kCreditBytes) + frame_header_bytes(*network_, roce::Opcode::kWriteOnly);
  const std::uint32_t acknowledge = frame_header_bytes(*network_, roce::Opcode::kAcknowledge);
  const auto links = static_cast<std::uint32_t>(network_->links());
  // Delays, and times of serialisation, of which the slowest.
  const auto latency = [&](const std::vector<std::uint32_t>& path, std::uint32_t size_bytes, TimePs& slowest) {
    TimePs sum = 0;
    slowest = 0;
    for (const std::uint32_t link : path) {
      const TimePs time = serialisation(link, size_bytes);
      sum += time + (link < links ? network_->link_delay_ps[link] : 0);
      slowest = std::max(slowest, time);
    }
    return sum;
  };
  const TimePs there = network_->packet_latency_ps[index(host_of(own.peer_rank))];
  const TimePs here = network_->packet_latency_ps[index(host_of(own.rank))];
  TimePs slowest = 0, unused = 0;
  own.first_latency = latency(own.path, full, slowest) + there;
  own.latency = own.first_latency - slowest;
  own.credit_latency = latency(own.path, credit, unused) + there;
  own.ack_latency = latency(back, acknowledge, unused) + here;
  double limit = FlowSharing::kUnlimited;
  if (config_.window_packets > 0 && own.first_latency + own.ack_latency > 0)
    limit = static_cast<double>(config_.window_packets) * full /
            static_cast<double>(own.first_latency + own.ack_latency);
  sharing_.move(id, ways_of(own), own.path.empty() ? 0 : limit);
}

// Where switches spread packets, each of several equally short ways has its part of them.
std::vector<Way> FlowSimulator::ways_of(const QueuePair& own) const {
  const std::int32_t from = host_of(own.rank), to = host_of(own.peer_rank);
  const bool spread = network_->balance != Balance::kPath && network_->balance != Balance::kFlowlet;
  if (circuits_.used() && from != to) return {{circuit_uses_[own.circuit].links[from < to ? 0 : 1], 1}};
  std::vector<Way> ways;
  const bool may_fail = !network_->changes.empty();
  const auto add = [&](std::uint32_t link, double share) {
    if (rate_bps_[link] == 0 && !may_fail) return;  // no limit
    const auto known = std::find_if(ways.begin(), ways.end(), [&](const Way& way) { return way.link == link; });
    if (known == ways.end()) {
      ways.push_back({link, share});
    } else {
      known->share += share;
    }
  };
  if (from == to || !spread || pinned_path(*network_, from, to) != nullptr) {
    for (const std::uint32_t link : own.path) add(link, 1);
    return ways;
  }
  std::vector<std::pair<std::int32_t, double>> at{{from, 1.0}};
  std::vector<std::uint32_t> choices;
  while (!at.empty()) {
    std::vector<std::pair<std::int32_t, double>> next;
    for (const auto& [node, share] : at) {
      choices.clear();
      network_->each_way(*routes_, node, to, [&](std::uint32_t link) { choices.push_back(link); });
      for (const std::uint32_t link : choices) {
        const double part = share / static_cast<double>(choices.size());
        const std::int32_t target = network_->link_target[link];
        add(link, part);
        if (target == to) continue;
        const auto known =
            std::find_if(next.begin(), next.end(), [&](const auto& one) { return one.first == target; });
        if (known == next.end()) {
          next.emplace_back(target, part);
        } else {
          known->second += part;
        }
      }
    }
    at = std::move(next);
  }
  return ways;
}

void FlowSimulator::push(TimePs time, Kind kind, std::uint32_t place, std::uint64_t what) {
  agenda_.push(time, {kind, place, what});
}

void FlowSimulator::start() {
  connect_all();
  apply_changes();
  for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
    operations_.clear();
    walkers_[rank].begin(0, operations_);
    perform(static_cast<std::int32_t>(rank));
  }
  settle();
}

bool FlowSimulator::run(std::uint64_t events) {
  const std::uint64_t until = events_ + events;
  const std::vector<Change>& changes = network_->changes;
  while (events_ < until && !failed_) {
    const bool changes_left = next_change_ < changes.size();
    if (agenda_.empty() && (!changes_left || done())) return false;
    const TimePs change = changes_left ? changes[next_change_].time : kNever;
    now_ = std::min(agenda_.next_time(), change);
    if (change == now_) apply_changes();
    while (true) {  // all of this instant
      while (agenda_.next_time() == now_) {
        agenda_.pop(current_);
        for (const Event& event : current_) handle(event);
      }
      if (to_walk_.empty()) break;
      walk_all();
    }
    settle();
  }
  return !failed_;
}

void FlowSimulator::handle(const Event& event) {
  ++events_;
  switch (event.kind) {
    case Kind::kFinish:
      if (queue_pairs_[event.place].version == event.what) finish(event.place);
      return;
    case Kind::kArrive: {
      const QueuePair& from = queue_pairs_[event.place];
      const Message& message = messages_[event.what];
      const roce::Spread::Arrival arrival{
          .size_bytes = message.size_bytes, .tag = message.tag, .first = message.first, .time = message.time};
      const std::int32_t rank = from.peer_rank, peer = from.rank;
      spreads_[queue_pairs_[from.peer].spread].arrived(
          from.number, arrival, [&](const roce::Spread::Arrival& whole) {
            deliver(rank, {.type = Completion::Type::kArrived,
                           .peer = peer,
                           .tag = whole.tag,
                           .size_bytes = static_cast<std::int64_t>(whole.size_bytes),
                           .first = whole.first,
                           .time = whole.time});
          });
      return;
    }
    case Kind::kAck: {
      const QueuePair& own = queue_pairs_[event.place];
      const roce::Spread::Sent over = spreads_[own.spread].sent(messages_[event.what].handle, 0);
      free_messages_.push_back(static_cast<std::int32_t>(event.what));
      if (over.whole)
        deliver(own.rank, {.type = Completion::Type::kSent,
                           .handle = over.handle,
                           .time = now_ - network_->message_latency_ps[index(host_of(own.rank))]});
      return;
    }
    case Kind::kCredit: {
      const QueuePair& from = queue_pairs_[event.place];
      const TimePs time = now_ - network_->message_latency_ps[index(host_of(from.peer_rank))];
      return deliver(from.peer_rank, {.type = Completion::Type::kArrived,
                                      .peer = from.rank,
                                      .tag = static_cast<std::uint32_t>(event.what),
                                      .size_bytes = kCreditBytes,
                                      .first = time,
                                      .time = time});
    }
    case Kind::kSleep:
      return deliver(static_cast<std::int32_t>(event.place),
                     {.type = Completion::Type::kTimer, .handle = event.what, .time = now_});
    case Kind::kPost:
      return post(static_cast<std::int32_t>(event.place), posts_[event.what]);
    case Kind::kCircuit:
      circuits_.is_up(event.place);
      for (const std::uint32_t id : std::exchange(circuit_uses_[event.place].waiting, {})) flow(id);
      return;
  }
}

void FlowSimulator::deliver(std::int32_t rank, Completion completion) {
  if (ready_[index(rank)].empty()) to_walk_.push_back(rank);
  ready_[index(rank)].push_back(completion);
}

void FlowSimulator::walk_all() {
  std::sort(to_walk_.begin(), to_walk_.end());
  for (const std::int32_t rank : std::exchange(to_walk_, {})) {
    operations_.clear();
    Walker& walker = walkers_[index(rank)];
    walker.advance(now_, ready_[index(rank)], operations_);
    ready_[index(rank)].clear();
    failed_ |= !walker.error().empty();
    perform(rank);
  }
}

void FlowSimulator::perform(std::int32_t rank) {
  for (const Operation& operation : operations_) {
    if (operation.type == Operation::Type::kTimer) {
      push(operation.at, Kind::kSleep, static_cast<std::uint32_t>(rank), operation.handle);
    } else if (network_->doorbell_latency > 0) {
      posts_.push_back(operation);
      push(now_ + network_->doorbell_latency, Kind::kPost, static_cast<std::uint32_t>(rank),
           posts_.size() - 1);
    } else {
      post(rank, operation);
    }
  }
}

void FlowSimulator::post(std::int32_t rank, const Operation& operation) {
  const std::uint32_t first = *first_of_.find(
      pair_key(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(operation.peer)));
  if ((operation.tag & kCreditTag) != 0) {  // too short to take a part of a link
    const QueuePair& own = queue_pairs_[first];
    ++data_packets_;
    for (const std::uint32_t link : own.path) {
      ++use_[link].packets;
      use_[link].bytes += static_cast<std::uint64_t>(kCreditBytes) +
                          frame_header_bytes(*network_, roce::Opcode::kWriteOnly);
    }
    const TimePs latency = network_->message_latency_ps[index(host_of(operation.peer))];
    return push(now_ + own.credit_latency + latency, Kind::kCredit, first, operation.tag);
  }
  spreads_[queue_pairs_[first].spread].send(
      operation.handle, static_cast<std::uint64_t>(operation.size_bytes),
      [&](std::uint32_t number, std::uint64_t handle, std::uint64_t, std::uint64_t size_bytes) {
        const std::uint32_t id = first + number;
        QueuePair& own = queue_pairs_[id];
        const std::int32_t message = walker_parts::take(
            messages_, free_messages_, Message{.handle = handle, .size_bytes = size_bytes, .tag = operation.tag});
        const bool idle = own.head < 0;
        walker_parts::append(messages_, own.head, own.tail, message);
        if (idle) begin(id);
      });
}

// The first message of a queue pair that was idle.
void FlowSimulator::begin(std::uint32_t id) {
  const QueuePair& own = queue_pairs_[id];
  if (circuits_.used() && own.path.size() > 1) {
    const auto granted = [&](std::uint32_t circuit, TimePs time) { push(time, Kind::kCircuit, circuit, 0); };
    if (!circuits_.take(own.circuit, now_, granted)) return circuit_uses_[own.circuit].waiting.push_back(id);
  }
  flow(id);
}

// The queue pair's first message flows from now on.
void FlowSimulator::flow(std::uint32_t id) {
  QueuePair& own = queue_pairs_[id];
  Message& message = messages_[index(own.head)];
  own.left_bytes = static_cast<double>(wire_bytes(message.size_bytes));
  own.since = now_;
  message.first = now_ + own.first_latency;
  if (sharing_.is_active(id)) return expect(id);
  sharing_.begin(id);
}

void FlowSimulator::expect(std::uint32_t id) {
  QueuePair& own = queue_pairs_[id];
  ++own.version;
  if (own.rate <= 0) return;
  const double time = std::isinf(own.rate) ? 0.0 : std::ceil(own.left_bytes / own.rate);
  push(own.since + static_cast<TimePs>(time), Kind::kFinish, id, own.version);
}

void FlowSimulator::finish(std::uint32_t id) {
  QueuePair& own = queue_pairs_[id];
  const std::int32_t at = own.head;
  Message& message = messages_[index(at)];
  const auto bytes = static_cast<std::uint64_t>(wire_bytes(message.size_bytes));
  const std::uint64_t count = packets(message.size_bytes);
  data_packets_ += count;
  for (const std::uint32_t link : own.path) {
    use_[link].packets += count;
    use_[link].bytes += bytes;
  }
  message.time = now_ + own.latency;
  message.first = std::min(message.first, message.time);
  const TimePs receiver = network_->message_latency_ps[index(host_of(own.peer_rank))];
  const TimePs sender = network_->message_latency_ps[index(host_of(own.rank))];
  push(message.time + receiver, Kind::kArrive, id, static_cast<std::uint64_t>(at));
  // Its place is free when both have been told, of which this is the later.
  push(std::max(message.time + own.ack_latency + sender, message.time + receiver), Kind::kAck, id,
       static_cast<std::uint64_t>(at));
  own.head = message.next;
  message.next = -1;
  if (own.head >= 0) return flow(id);
  own.tail = -1;
  sharing_.end(id);
  own.rate = 0;
  if (circuits_.used() && own.path.size() > 1) {
    circuits_.leave(own.circuit, now_,
                    [&](std::uint32_t circuit, TimePs time) { push(time, Kind::kCircuit, circuit, 0); });
  }
}

void FlowSimulator::settle() {
  sharing_.settle([&](std::uint32_t id) {
    flowed(queue_pairs_[id]);
    queue_pairs_[id].rate = sharing_.rate(id);
    expect(id);
  });
}

// What has left until now is no longer to be sent.
void FlowSimulator::flowed(QueuePair& own) const {
  const auto time = static_cast<double>(now_ - own.since);
  if (time > 0) own.left_bytes = std::max(0.0, own.left_bytes - own.rate * time);
  own.since = now_;
}

// What happens to the network until now; queue pairs go by the routes that hold now.
void FlowSimulator::apply_changes() {
  bool reroutes = false;
  for (; next_change_ < network_->changes.size() && network_->changes[next_change_].time <= now_;
       ++next_change_) {
    const Change& change = network_->changes[next_change_];
    switch (change.kind) {
      case Change::Kind::kRoutes:
        routes_ = &network_->routes[change.number];
        reroutes = true;
        break;
      case Change::Kind::kDown:
        sharing_.set_capacity(change.number, 0);
        break;
      case Change::Kind::kUp:
        sharing_.set_capacity(change.number, bytes_per_ps(rate_bps_[change.number]));
        break;
      case Change::Kind::kRate:
        rate_bps_[change.number] = change.rate_bps;
        sharing_.set_capacity(change.number, bytes_per_ps(change.rate_bps));
        break;
    }
  }
  if (!reroutes) return;
  std::vector<std::uint32_t> path;
  for (QueuePair& own : queue_pairs_) {
    find_path(*network_, *routes_, host_of(own.rank), host_of(own.peer_rank), own.port, path);
    if (!path.empty()) own.path = path;
  }
  for (std::uint32_t id = 0; id < queue_pairs_.size(); ++id) {
    const bool active = sharing_.is_active(id);
    if (active) {
      flowed(queue_pairs_[id]);
      queue_pairs_[id].rate = 0;
      ++queue_pairs_[id].version;
      sharing_.end(id);
    }
    set_way(id);
    if (active) sharing_.begin(id);
  }
}

bool FlowSimulator::done() const {
  return !failed_ && std::all_of(walkers_.begin(), walkers_.end(), [](const Walker& w) { return w.done(); });
}

std::vector<std::string> FlowSimulator::problems() const {
  std::vector<std::string> lines;
  for (const Walker& walker : walkers_) {
    if (!walker.error().empty()) lines.push_back(walker.error());
  }
  if (!lines.empty()) return lines;
  for (const Walker& walker : walkers_) {
    if (walker.done() || lines.size() >= 8) continue;
    for (std::string& line : walker.waiting(2)) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace genie::twin
