// The order of packets that reach a switch: by time, and of those that come at one instant by turns.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/fold.hpp"
#include "core/time.hpp"
#include "twin/kernel/renumbering.hpp"
#include "twin/kernel/scope.hpp"
#include "twin/port/packet.hpp"

namespace genie::twin {

struct PriorityQueue;

struct Arrival {
  Packet* packet;
  const PriorityQueue* queue;  // on which it goes on
  std::uint32_t input, next;   // among the switch's inputs; the link by which it goes on
};

struct Contender {  // of one of those that come together: the lowest rank goes first, then the lowest key
  std::uint64_t rank, key;
  friend bool operator<(const Contender& a, const Contender& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.key < b.key;
  }
};

// The arrivals of one switch in one window, and keys by which they are sorted. Kept for its memory.
struct alignas(64) ArrivalBatch {
  static constexpr unsigned kBucketBits = 10;

  std::vector<std::uint64_t> keys, sorted;  // of one size
  std::vector<Arrival> arrivals;
  std::vector<std::uint32_t> inputs;    // by which they come, ascending
  std::vector<Contender> turns, drawn;  // of one instant
  std::array<std::uint32_t, (1u << kBucketBits) + 1> places{};
  bool has_doubtful_turn = false;  // turns have mattered where the order of inputs is not known
  bool has_drawn = false;          // turns

  void make_room(std::size_t count) {
    if (count <= arrivals.size()) [[likely]]
      return;
    const std::size_t size = std::bit_ceil(count);
    keys.resize(size);
    sorted.resize(size);
    arrivals.resize(size);
  }
  void sort_keys(std::size_t count);
};

// The inputs of a switch, and when each has been served.
class alignas(64) InputOrder {
 public:
  std::vector<std::uint32_t> links;

  void add(std::uint32_t link) {
    links.push_back(link);
    served_.push_back(0);
    met_.push_back(0);
    busy_.resize((links.size() + 63) / 64);
  }
  // Packets are on their way by an input, or are not. Bits may be stale, but never missing.
  void set_busy(std::uint32_t input) { busy_[input / 64] |= std::uint64_t{1} << (input % 64); }
  void set_idle(std::uint32_t input) { busy_[input / 64] &= ~(std::uint64_t{1} << (input % 64)); }
  void list_busy(std::vector<std::uint32_t>& inputs) const;
  void serve(std::uint32_t input) { served_[input] = ++clock_; }

  // The latest service of an input. Packets that are played apart pass inputs beside others that the switch
  // serves. Of two services at one instant the order is known where their marks are equal, or where they came
  // together and have unlike places.
  struct Service {
    TimePs time = kLongAgo;
    std::uint64_t order = 0;  // among those whose order is known
    std::uint32_t mark = 0;
    std::uint32_t place = 0;     // among those that came together
    std::uint64_t together = 0;  // equal for these; 0: none

    bool has_known_order(const Service& other) const {
      return time != other.time || mark == other.mark ||
             (together != 0 && together == other.together && place != other.place);
    }
  };
  static constexpr TimePs kLongAgo = -kNever;
  // Keeps times and marks from now on, and turns go by them.
  void keep_services() { services_.resize(links.size()); }
  bool keeps_services() const { return !services_.empty(); }
  const Service& service_of(std::uint32_t input) const { return services_[input]; }
  void set_service(std::uint32_t input, const Service& service) { services_[input] = service; }
  static constexpr std::uint32_t kMarks = 1u << 31;  // those from here on are its own
  std::uint32_t make_mark() { return ++latest_mark_; }
  // A service that is still to come, by what is played elsewhere. In the order of time.
  void add_later_service(std::uint32_t input, const Service& service) { later_.push_back({input, service}); }
  // Those that have come before `now` count from now on.
  void take_later(TimePs now);
  // An input is served alone.
  void serve_alone(std::uint32_t input, TimePs now) { services_[input] = {now, ++clock_, mark_at(now)}; }
  // A scope's inputs have been ahead. The order of their services at one instant is known among them, and not
  // beside others. So is that of their next ones, until they have come to where the others are.
  void come_back(const Scope& scope);

  // Takes over the latest services of another switch's inputs since time 0. link_here(link): here; kNone: its
  // are not taken. `is_alone`: no other's are; else the order at one instant is known among those of each.
  template <class Function>
  void take_over(const InputOrder& earlier, Function link_here, bool is_alone) {
    const std::uint64_t before = std::exchange(clock_, clock_ + earlier.clock_);
    latest_ = std::max(latest_, earlier.latest_);
    NewMarks marks(*this);
    for (std::uint32_t input = 0; input < earlier.links.size(); ++input) {
      const auto here = std::ranges::find(links, link_here(earlier.links[input]));
      if (here == links.end()) continue;
      const auto own = static_cast<std::uint32_t>(here - links.begin());
      take_over(own, earlier, input, marks, is_alone, before);
    }
  }

  // Puts the keys of one instant, from the place `first` on, into the order of their turns. The bits of a key
  // above `number_bits` are its time, those below the number of its arrival. Returns the place after them.
  std::size_t take_turns(ArrivalBatch& batch, std::size_t first, std::size_t count, unsigned number_bits,
                         std::uint64_t seed, TimePs begin = 0);

  // Turns depend on the order of the inputs alone.
  void fold(Fold& fold, const Scope& scope);
  // The kept services of a scope's links.
  void fold_services(Fold& fold, const Scope& scope);

 private:
  // Equal for those that came together when they came last.
  std::uint64_t meeting(std::uint32_t input) const { return std::max(served_[input], met_[input]); }
  // Of a service whose order is known. Others may have been served at that instant before.
  std::uint32_t mark_at(TimePs now) {
    const bool is_behind = now <= latest_;
    latest_ = std::max(latest_, now);
    return is_behind ? behind_mark_ : 0;
  }
  // For each mark that is given to it another that has not been.
  class NewMarks {
   public:
    explicit NewMarks(InputOrder& inputs) : inputs_(inputs) {}
    std::uint32_t of(std::uint32_t mark) {
      const auto known = std::ranges::find(marks_, mark, &std::pair<std::uint32_t, std::uint32_t>::first);
      if (known != marks_.end()) return known->second;
      return marks_.emplace_back(mark, inputs_.make_mark()).second;
    }

   private:
    InputOrder& inputs_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> marks_;
  };
  void take_over(std::uint32_t own, const InputOrder& earlier, std::uint32_t input, NewMarks& marks,
                 bool is_alone, std::uint64_t clock_before);
  struct KeptTurn {
    Service before;  // the latest of its input
    std::uint64_t key = 0;
    std::uint32_t input = 0;
  };
  static std::vector<std::uint32_t> places_of(const std::vector<KeptTurn>& turns);
  bool take_known_turns(ArrivalBatch& batch, std::uint64_t number_mask, TimePs now);
  void take_kept_turns(ArrivalBatch& batch, std::uint64_t number_mask, TimePs now);
  void draw_turns(ArrivalBatch& batch, std::size_t first, std::size_t end, std::uint64_t number_mask,
                  std::uint64_t seed);

  std::vector<std::uint64_t> busy_;    // a bit for each input
  std::vector<std::uint64_t> served_;  // by input: the clock after its last arrival
  std::vector<std::uint64_t> met_;     // and after the last instant at which it came with others
  std::uint64_t clock_ = 0;            // arrivals ever
  struct Later {
    std::uint32_t input;
    Service service;
  };

  std::vector<Service> services_;     // by input, where they are kept
  std::vector<KeptTurn> kept_turns_;  // of the instant at hand
  std::vector<Later> later_;          // from later_at_ on they are still to come
  std::size_t later_at_ = 0;
  std::uint32_t latest_mark_ = kMarks, behind_mark_ = 0;
  TimePs latest_ = kLongAgo;  // service
  std::vector<std::uint32_t> in_scope_;
  std::uint64_t drawn_ = 0;  // meetings that a draw has put in order
};

// The inputs of all switches, each by the process that plays it alone.
class SwitchInputs {
 public:
  // Before the links are added: of so many processes.
  void begin(std::size_t processes, std::uint32_t links) {
    inputs_.assign(processes, {});
    process_of_.assign(links, 0);
    input_of_.assign(links, 0);
  }
  void add(std::uint32_t process, std::uint32_t link) {
    process_of_[link] = process;
    input_of_[link] = static_cast<std::uint32_t>(inputs_[process].links.size());
    inputs_[process].add(link);
  }
  bool is_switch(std::uint32_t process) const { return !inputs_[process].links.empty(); }
  InputOrder& operator[](std::uint32_t process) { return inputs_[process]; }
  // A link of the process has packets on their way.
  void set_busy(std::uint32_t process, std::uint32_t link) { inputs_[process].set_busy(input_of_[link]); }

  // Of a link's input; see InputOrder.
  void keep_services() {
    for (InputOrder& own : inputs_) own.keep_services();
  }
  const InputOrder::Service& service_of(std::uint32_t link) const {
    return inputs_[process_of_[link]].service_of(input_of_[link]);
  }
  void set_service(std::uint32_t link, const InputOrder::Service& service) {
    inputs_[process_of_[link]].set_service(input_of_[link], service);
  }
  void add_later_service(std::uint32_t link, const InputOrder::Service& service) {
    inputs_[process_of_[link]].add_later_service(input_of_[link], service);
  }
  std::uint32_t make_mark(std::uint32_t link) { return inputs_[process_of_[link]].make_mark(); }
  void take_later(TimePs now) {
    for (InputOrder& own : inputs_) own.take_later(now);
  }
  void come_back(const Scope& scope) {
    for (InputOrder& own : inputs_) own.come_back(scope);
  }
  // Takes over the latest services of other switches' inputs, of links that are used and are here too.
  // is_used(link): by its number there. `is_alone`: no other's are taken over.
  template <class Function>
  void take_over(const SwitchInputs& earlier, const Renumbering& to, Function is_used, bool is_alone) {
    for (const InputOrder& from : earlier.inputs_) {
      const auto known = std::ranges::find_if(
          from.links, [&](std::uint32_t link) { return to.links[link] != Renumbering::kNone; });
      if (known == from.links.end()) continue;
      const auto link_here = [&](std::uint32_t link) {
        return is_used(link) ? to.links[link] : Renumbering::kNone;
      };
      inputs_[process_of_[to.links[*known]]].take_over(from, link_here, is_alone);
    }
  }

  void fold(Fold& fold, const Scope& scope) {
    for (InputOrder& own : inputs_) own.fold(fold, scope);
  }
  void fold_services(Fold& fold, const Scope& scope) {
    for (InputOrder& own : inputs_) own.fold_services(fold, scope);
  }

 private:
  std::vector<InputOrder> inputs_;  // by process
  // By link, where its target is a switch: the switch's process, and the place among its inputs.
  std::vector<std::uint32_t> process_of_, input_of_;
};

}  // namespace genie::twin
