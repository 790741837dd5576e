/* Hoare's selection: each pass moves what is less than a pivot before what is not, until the middle is found. NaN counts
 * as larger than any number. */
static int acme_less(float a, float b) { return a < b || (a == a && b != b); }

static void acme_median_f32(const float *x, float *y, float *row, int64_t n, int64_t *error) {
    (void)error;
    for (int64_t i = 0; i < n; i++) row[i] = x[i];
    const int64_t middle = (n - 1) / 2;
    for (int64_t low = 0, high = n - 1; low < high;) {
        const float pivot = row[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (acme_less(row[i], pivot)) i++;
            while (acme_less(pivot, row[j])) j--;
            if (i <= j) {
                const float other = row[i];
                row[i++] = row[j];
                row[j--] = other;
            }
        }
        if (middle <= j) {
            high = j;
        } else if (middle >= i) {
            low = i;
        } else {
            break;
        }
    }
    *y = row[middle];
}
